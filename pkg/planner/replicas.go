// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"cmp"
	"fmt"

	"github.com/modelberth/modelberth/pkg/usd"
)

// byReplicas describes how many parallel deployments serve a load beyond one, and their price.
func (p *Planner) byReplicas(r Request) string {
	const doublings, most = 3, 1000 // deployments with enough memory may yet be too slow
	asked := r.Objectives.Concurrency
	if asked < 2 || r.Model == nil {
		return ""
	}
	one := r
	one.Objectives.Concurrency = 1
	one.Objectives.MaxModelLen = min(cmp.Or(r.Objectives.MaxModelLen, targetModelLen), r.Model.Context)
	o, ok := p.best(one)
	if !ok {
		return ""
	}
	replicas := 2
	if held := o.holds(); held > 0 {
		replicas = max(replicas, ceilDiv(asked, held))
	}
	for range doublings {
		if replicas > most {
			return ""
		}
		share := r
		share.Objectives.Concurrency = ceilDiv(asked, replicas)
		if o, ok := p.best(share); ok {
			return o.sideBySide(replicas, share.Objectives.Concurrency)
		}
		replicas *= 2
	}
	return ""
}

// sideBySide words several deployments of an option.
func (o *option) sideBySide(replicas, concurrency int) string {
	text := fmt.Sprintf("; %d Workspaces with inference.objectives.concurrency: %d serve it on %s each", replicas, concurrency, priced(o))
	if o.price > 0 {
		text += fmt.Sprintf(", %s in all", usd.PerHour(o.price*float64(replicas)))
	}
	return text
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }
