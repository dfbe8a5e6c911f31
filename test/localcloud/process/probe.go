// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"fmt"
	"time"
)

// Await calls ready every interval until it returns nil. When ctx ends first, the error names the awaited thing and
// ready's last answer.
func Await(ctx context.Context, what string, interval time.Duration, ready func(context.Context) error) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w (last answer: %w)", what, context.Cause(ctx), err)
		case <-ticker.C:
		}
	}
}
