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

// mostStartUps bounds the remembered start-ups of a set. The latest ones predict the next one best.
const mostStartUps = 20

// memories holds the memory of each set. The memories are lost with the process: a new leader watches for a whole
// window before it removes a replica.
type memories struct {
	mu    sync.Mutex
	bySet map[types.NamespacedName]*memory
}

// memory is the state of one set. Only one pass at a time uses it.
type memory struct {
	uid    types.UID
	policy autoscale.Policy
	state  autoscale.State
	// at is the time of the last look. desired and wake are the set's number of replicas and annotation at that time.
	at      time.Time
	desired int
	wake    string
	// readings holds the last reading of each replica.
	readings map[types.UID]reading
	startUps []startUp
	price    price
	// seen is the last observation of the engines. Another look right after it uses that observation.
	seen *observed
	keys map[string]apiKey

	verdict    verdict
	lastChange string
	// pending is the message of a verdict that is not yet reported, and pendingSince is when it first differed.
	pending      string
	pendingSince time.Time
}

// price is the last known price of a replica, in USD per hour; 0 if it is unknown. isPlanned reports whether a replica
// has had a plan.
type price struct {
	template  v1beta1.InferenceSetTemplate
	hourly    float64
	isPlanned bool
}

// startUp is how long the start of a replica took.
type startUp struct {
	replica types.UID
	took    time.Duration
}

// apiKey is an API key of engines, with the time of its read. problem explains why it could not be read.
type apiKey struct {
	value, problem string
	at             time.Time
}

// of returns the memory of a set. Another set of the same name gets a new memory.
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

// differs reports whether something has changed since the last look and must not wait for the next.
func (m *memory) differs(set *v1beta1.InferenceSet, policy autoscale.Policy) bool {
	return m.desired != set.DesiredReplicas() || m.wake != set.Annotations[v1beta1.AnnotationWake] || !reflect.DeepEqual(m.policy, policy)
}

// refresh drops the state that a new policy, or a long time without a look, invalidates. Then no replica is removed
// before another window is over.
func (m *memory) refresh(policy autoscale.Policy, now time.Time) {
	gap := now.Sub(m.at)
	if reflect.DeepEqual(m.policy, policy) && gap >= 0 && gap <= mostGap {
		return
	}
	m.policy = policy
	m.state = autoscale.State{
		Curve: m.state.Curve, Changes: m.state.Changes, Ready: m.state.Ready,
		HasEngines: m.state.HasEngines, IsShort: m.state.IsShort, Lost: m.state.Lost,
	}
}

// isStale reports whether the engines must be read again. After a conflict, passes repeat several times a second, and
// use the same observation.
func (m *memory) isStale(now time.Time) bool {
	if m.seen == nil {
		return true
	}
	age := now.Sub(m.seen.at)
	return age < 0 || age >= leastSpan
}

// saw records the result of a look.
func (m *memory) saw(set *v1beta1.InferenceSet, desired int, state autoscale.State, now time.Time) {
	m.state, m.at, m.desired, m.wake = state, now, desired, set.Annotations[v1beta1.AnnotationWake]
}

// learn remembers the start-up of a replica once.
func (m *memory) learn(replica types.UID, took time.Duration) {
	if took <= 0 || slices.ContainsFunc(m.startUps, func(s startUp) bool { return s.replica == replica }) {
		return
	}
	m.startUps = append(m.startUps, startUp{replica, took})
	if over := len(m.startUps) - mostStartUps; over > 0 {
		m.startUps = m.startUps[over:]
	}
}
