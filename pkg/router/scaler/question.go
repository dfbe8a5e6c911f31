// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package scaler

import (
	"fmt"
	"maps"
	"math"
	"strconv"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/modelberth/modelberth/pkg/router"
	"github.com/modelberth/modelberth/pkg/router/models"
)

// Keys of a trigger's metadata. KEDA passes on all of them, also its own, which have other names.
const (
	keySet       = "set"
	keyNamespace = "namespace"
	keyMetric    = "metric"
	keyTarget    = "target"
	// keyScope limits the answer to the requests of one router. Routers use it to ask each other.
	keyScope = "scope"
)

// scopeRouter is the only value of keyScope.
const scopeRouter = "router"

// The metrics.
const (
	requestsInFlight = "RequestsInFlight"
	tokensInFlight   = "TokensInFlight"
)

// question is a request from KEDA for a ScaledObject.
type question struct {
	// id identifies the set.
	id     string
	metric string
	// target is the target value for each replica.
	target float64
	// isPart: only the requests of this router count.
	isPart bool
	ref    ref
}

// parse reads a question. The set is always in the namespace of the ScaledObject, which KEDA sets: its author reads
// nothing of other namespaces.
func parse(from *ref) (*question, error) {
	out := &question{metric: from.metadata[keyMetric], ref: *from}
	invalid := func(key, must string) error {
		value, isSet := from.metadata[key]
		if !isSet {
			return status.Errorf(codes.InvalidArgument, "the metadata of the trigger lacks %s: it must be %s", key, must)
		}
		return status.Errorf(codes.InvalidArgument, "%s in the metadata of the trigger is %.100q: it must be %s", key, value, must)
	}
	if from.namespace == "" {
		return nil, status.Error(codes.InvalidArgument, "the request has no namespace of a ScaledObject")
	}
	if name := from.metadata[keySet]; name == "" || len(name) > mostName {
		return nil, invalid(keySet, "the name of an InferenceSet")
	}
	if namespace, isSet := from.metadata[keyNamespace]; isSet && namespace != from.namespace {
		return nil, invalid(keyNamespace, "the namespace of the ScaledObject, "+from.namespace)
	}
	if out.metric != requestsInFlight && out.metric != tokensInFlight {
		return nil, invalid(keyMetric, requestsInFlight+" or "+tokensInFlight)
	}
	var err error
	out.target, err = strconv.ParseFloat(from.metadata[keyTarget], 64)
	if err != nil || !(out.target >= leastTarget) || !(out.target <= mostTarget) {
		return nil, invalid(keyTarget, fmt.Sprintf("a number from %g to %d for each replica", leastTarget, int(mostTarget)))
	}
	scope, isSet := from.metadata[keyScope]
	if isSet && scope != scopeRouter {
		return nil, invalid(keyScope, "absent")
	}
	out.isPart = isSet
	out.id = from.namespace + models.Separator + from.metadata[keySet]
	return out, nil
}

// Check returns an error if a ScaledObject of the namespace cannot have this metadata in its trigger.
func Check(namespace string, metadata map[string]string) error {
	_, err := parse(&ref{namespace: namespace, metadata: metadata})
	return err
}

// Limits of a question. The API server admits no longer name. KEDA counts in thousandths.
const (
	mostName    = 253
	leastTarget = 0.001
	mostTarget  = 1e9
)

// part returns the same question about one router.
func (q *question) part() *ref {
	metadata := maps.Clone(q.ref.metadata)
	metadata[keyScope] = scopeRouter
	return &ref{name: q.ref.name, namespace: q.ref.namespace, metadata: metadata}
}

// value returns the metric of a demand.
func (q *question) value(of router.Demand) float64 {
	if q.metric == tokensInFlight {
		return float64(of.Tokens)
	}
	return float64(of.Requests)
}

// ceil returns a number for clients that read no fractions.
func ceil(value float64) int64 { return int64(math.Ceil(value)) }
