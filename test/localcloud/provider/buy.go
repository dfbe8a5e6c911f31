// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/modelberth/modelberth/test/localcloud/cloud"
	"github.com/modelberth/modelberth/test/script"
)

// silencePause is the pause between two requests to a silent cloud.
const silencePause = time.Second

// buy tries the offers in their order until the cloud sells one.
func (p *Provider) buy(ctx context.Context, claim *karpv1.NodeClaim, offers []offer) (cloud.Machine, error) {
	attempt := strconv.FormatInt(p.attempts.Add(1), 36)
	var refusals []*cloud.Error
	var words script.Cloud
	for _, o := range offers {
		request := requestFor(claim, o)
		request.Attempt = attempt
		m, err := p.ask(ctx, request)
		if err == nil {
			return m, nil
		}
		var refused *cloud.Error
		if !errors.As(err, &refused) {
			return cloud.Machine{}, fmt.Errorf("creating machine %s: %w", claim.Name, err)
		}
		switch refused.Code {
		case cloud.CodeNoCapacity, cloud.CodeQuota:
		case cloud.CodeUnavailable:
			return cloud.Machine{}, verdict(script.Plain, []*cloud.Error{refused})
		default:
			return cloud.Machine{}, cloudprovider.NewCreateError(refused, reasonCreateFailed, refused.Message)
		}
		refusals, words = append(refusals, refused), refused.Cloud
	}
	return cloud.Machine{}, verdict(words, refusals)
}

// ask asks for one machine and waits for as long as the cloud lets it wait.
func (p *Provider) ask(ctx context.Context, request cloud.Request) (cloud.Machine, error) {
	for {
		m, err := p.cloud.Create(ctx, request)
		var refused *cloud.Error
		switch {
		case err == nil:
			return m, rest(ctx, time.Until(m.Answered))
		case !errors.As(err, &refused):
			return cloud.Machine{}, err
		case refused.Code != cloud.CodeSilent:
			return cloud.Machine{}, errors.Join(rest(ctx, refused.Delay), err)
		}
		if err := rest(ctx, silencePause); err != nil {
			return cloud.Machine{}, err
		}
	}
}

// rest waits, or returns the context's error if the caller gives up first.
func rest(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	select {
	case <-ctx.Done():
		return fmt.Errorf("waiting for the cloud's answer: %w", ctx.Err())
	case <-time.After(d):
		return nil
	}
}

// verdict turns the cloud's refusals of one attempt into the provider's error for Karpenter.
func verdict(words script.Cloud, refusals []*cloud.Error) error {
	var said []script.Refusal
	for _, refused := range refusals {
		if refused.Refusal != nil {
			said = append(said, *refused.Refusal)
		} else {
			said = append(said, unscripted(refused))
		}
	}
	combined, all := script.Combine(words, said)
	switch combined.Ending {
	case script.Keep:
		return cloudprovider.NewCreateError(errors.New(all), combined.Reason, combined.Message)
	case script.Error:
		return errors.New(all)
	case script.Delete:
	}
	return cloudprovider.NewInsufficientCapacityError(errors.New(all))
}

// unscripted returns a refusal of the cloud's own, outside any script.
func unscripted(refused *cloud.Error) script.Refusal {
	if refused.Code == cloud.CodeQuota {
		return script.Refusal{Ending: script.Keep, Reason: reasonQuota, Message: refused.Message}
	}
	return script.Refusal{Ending: script.Delete, Message: refused.Message}
}
