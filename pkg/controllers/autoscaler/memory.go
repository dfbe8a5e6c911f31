// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaler

import (
	"reflect"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/autoscale"
)

// mostStartUps that are remembered of a set: the last ones say most about the next.
const mostStartUps = 20

// memories of all sets. They end with the process: a new leader watches for a window before it lets a replica go.
type memories struct {
	mu    sync.Mutex
	bySet map[types.NamespacedName]*memory
}

// memory of one set. One pass at a time uses it.
type memory struct {
	uid    types.UID
	policy autoscale.Policy
	state  autoscale.State
	// at is the last look. desired and wake are the set's number and annotation since then.
	at      time.Time
	desired int
	wake    string
	// readings are the last of each replica.
	readings map[types.UID]reading
	startUps []startUp
	price    price
	// seen is what the engines said last. Another look right after it uses that.
	seen *observed
	keys map[string]apiKey

	verdict    verdict
	lastChange string
	// pending is a verdict without a change of the number that was not reported yet, since a moment.
	pending      string
	pendingSince time.Time
}

// price of a replica of a template per hour, as last seen; 0 if it is unknown. isPlanned: a replica has had a plan.
type price struct {
	template  v1beta1.InferenceSetTemplate
	hourly    float64
	isPlanned bool
}

// startUp of a replica.
type startUp struct {
	replica types.UID
	took    time.Duration
}

// apiKey of engines, as read at a moment. problem is why it could not be read.
type apiKey struct {
	value, problem string
	at             time.Time
}

// of returns the memory of a set, which is new for another set of the name.
func (m *memories) of(set *v1beta1.InferenceSet) *memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := client.ObjectKeyFromObject(set)
	found := m.bySet[key]
	if found == nil || found.uid != set.UID {
		found = &memory{uid: set.UID, readings: map[types.UID]reading{}, keys: map[string]apiKey{}}
		m.bySet[key] = found
	}
	return found
}

func (m *memories) forget(set types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.bySet, set)
}

// differs reports whether something changed since the last look that must not wait for the next one.
func (m *memory) differs(set *v1beta1.InferenceSet, policy autoscale.Policy) bool {
	return m.desired != set.DesiredReplicas() || m.wake != set.Annotations[v1beta1.AnnotationWake] || !reflect.DeepEqual(m.policy, policy)
}

// refresh drops what a new policy, or a long time without a look, makes worthless. Then no replica goes before another
// window is over.
func (m *memory) refresh(policy autoscale.Policy, now time.Time) {
	gap := now.Sub(m.at)
	if reflect.DeepEqual(m.policy, policy) && gap >= 0 && gap <= mostGap {
		return
	}
	m.policy = policy
	m.state = autoscale.State{Curve: m.state.Curve, Changes: m.state.Changes, Ready: m.state.Ready}
}

// isStale reports whether the engines must be read again. A write on an outdated read is repeated several times a second.
func (m *memory) isStale(now time.Time) bool {
	if m.seen == nil {
		return true
	}
	age := now.Sub(m.seen.at)
	return age < 0 || age >= leastSpan
}

// saw ends a look.
func (m *memory) saw(set *v1beta1.InferenceSet, desired int, state autoscale.State, now time.Time) {
	m.state, m.at, m.desired, m.wake = state, now, desired, set.Annotations[v1beta1.AnnotationWake]
}

// learn remembers a start-up, once.
func (m *memory) learn(replica types.UID, took time.Duration) {
	if took <= 0 || slices.ContainsFunc(m.startUps, func(s startUp) bool { return s.replica == replica }) {
		return
	}
	m.startUps = append(m.startUps, startUp{replica, took})
	if over := len(m.startUps) - mostStartUps; over > 0 {
		m.startUps = m.startUps[over:]
	}
}
