// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/labels"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/modelberth/modelberth/pkg/options"
)

// TestWorkspaceTakesFewBytes bounds the memory of the leader's caches for each Workspace. The file has the objects of one
// that serves on a machine of its own, as an API server has them.
func TestWorkspaceTakesFewBytes(t *testing.T) {
	const count, most = 300, 45_000
	data, err := os.ReadFile("testdata/cached.yaml")
	if err != nil {
		t.Fatal(err)
	}
	scheme, err := Scheme()
	if err != nil {
		t.Fatal(err)
	}
	kept := cacheOptions(options.Controller{}, options.BackendNodeClaim, kinds{nodeClaimKind()})
	decoder := serializer.NewCodecFactory(scheme).UniversalDeserializer()
	total, foreign := 0, []string{}
	for manifest := range bytes.SplitSeq(data, []byte("\n---\n")) {
		asJSON, err := yaml.YAMLToJSON(manifest)
		if err != nil {
			t.Fatal(err)
		}
		decoded, _, err := decoder.Decode(asJSON, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		object, ok := decoded.(client.Object)
		if !ok {
			t.Fatalf("%T is no object", decoded)
		}
		rules := rulesFor(kept, object)
		if rules.Label != nil && !rules.Label.Matches(labels.Set(object.GetLabels())) {
			foreign = append(foreign, object.GetName())
			continue
		}
		each := bytesOf(t, count, func() (any, error) { return rules.Transform(received(t, object)) })
		t.Logf("%T: %d bytes", object, each)
		total += each
	}
	// The revision that Kubernetes keeps of the StatefulSet has the labels of its pods, and so one of ours.
	if diff := cmp.Diff([]string{"ws-0000-6dcfdb877f"}, foreign); diff != "" {
		t.Errorf("objects outside the caches (-want +got):\n%s", diff)
	}
	t.Logf("figure: the caches' memory for each Workspace is %d bytes (at most %d)", total, most)
	if total > most {
		t.Errorf("%d bytes for each Workspace, want at most %d", total, most)
	}
}

// rulesFor returns the cache's rules for a kind of object, with its defaults.
func rulesFor(kept cache.Options, object client.Object) cache.ByObject {
	out := cache.ByObject{Transform: kept.DefaultTransform}
	for kind, rules := range kept.ByObject {
		if reflect.TypeOf(kind) == reflect.TypeOf(object) {
			out = rules
		}
	}
	if out.Transform == nil {
		out.Transform = kept.DefaultTransform
	}
	return out
}

// received returns an object as a client decodes it: from the wire format of kinds that have one, else from JSON.
func received(t *testing.T, object client.Object) kruntime.Object {
	t.Helper()
	out, ok := reflect.TypeAssert[client.Object](reflect.New(reflect.TypeOf(object).Elem()))
	if !ok {
		t.Fatalf("%T is no object", object)
	}
	type wire interface {
		Marshal() ([]byte, error)
		Unmarshal(data []byte) error
	}
	var data []byte
	var err error
	from, isFrom := object.(wire)
	into, isInto := out.(wire)
	if isFrom && isInto {
		if data, err = from.Marshal(); err == nil {
			err = into.Unmarshal(data)
		}
	} else if data, err = json.Marshal(object); err == nil {
		err = json.Unmarshal(data, out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// bytesOf returns the memory of each of count values.
func bytesOf(t *testing.T, count int, value func() (any, error)) int {
	t.Helper()
	values := make([]any, count)
	before := heapInUse()
	for i := range values {
		var err error
		if values[i], err = value(); err != nil {
			t.Fatal(err)
		}
	}
	after := heapInUse()
	runtime.KeepAlive(values)
	return (int(after) - int(before)) / count
}

func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
