// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// adapterImage is pushed by the test, with an adapter's files in the place of KAITO's images. The agent gets the local
// registry's address: a name would need TLS, and that registry has none.
const (
	adapterImage     = "registry.local:5000/" + adapterName
	adapterByAddress = "10.231.0.1:5000/" + adapterName
	adapterName      = "e2e/adapter:1"
)

// adaptedWorkspace has one adapter of the local cloud's hub, one from its registry, and one on a volume.
const adaptedWorkspace = vllmWorkspace + `  adapters:
  - source:
      name: from-hub
      repository: modelberth/tiny-chat-vllm-lora
  - source:
      name: from-image
      image: ` + adapterByAddress + `
  - source:
      name: from-volume
      volumeSource: {configMap: {name: adapter}}
`

// adapters asks a model and three adapters of it: each is listed, and answers in its own way.
func adapters(t *testing.T) {
	ns := namespace(t)
	files := adapterFiles(t)
	pushAdapter(t, files)
	volume := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "adapter"}, BinaryData: files}
	if err := local.client.Create(t.Context(), volume); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	apply(t, ns, adaptedWorkspace)
	ws := waitReady(t, ns, "chat")
	elapsed(t, "a Workspace with three adapters from manifest to ready", start)
	want := []string{"from-hub", "from-image", "from-volume", vllmModel}
	listed := listedModels(t, keyOf(ws))
	for _, name := range want {
		if !slices.Contains(listed, name) {
			t.Errorf("/v1/models lists %v, want %s among them", listed, name)
		}
	}
	if diff := cmp.Diff(slices.Sorted(slices.Values(listed)), slices.Sorted(slices.Values(ws.Status.Endpoint.Models))); diff != "" {
		t.Errorf("names in /v1/models and in status.endpoint.models (-endpoint +status):\n%s", diff)
	}
	answers := map[string]string{}
	for _, name := range want {
		answers[completion(t, ws, name)] = name
	}
	if len(answers) != len(want) {
		t.Errorf("the model and its adapters gave only these answers: %v", answers)
	}
}

// completion is what a model, or an adapter, goes on with.
func completion(t *testing.T, ws *v1beta1.Workspace, model string) string {
	t.Helper()
	var answer struct {
		Model   string
		Choices []struct{ Text string }
	}
	decodeJSON(t, curl(t, ws.Namespace, "--header", "Content-Type: application/json",
		"--data", fmt.Sprintf(`{"model": %q, "prompt": "Hello", "max_tokens": 16, "ignore_eos": true, "temperature": 0}`, model),
		baseURL(keyOf(ws))+"/completions"), &answer)
	if answer.Model != model || len(answer.Choices) != 1 || answer.Choices[0].Text == "" {
		t.Fatalf("asked for model %s, answered %+v", model, answer)
	}
	return answer.Choices[0].Text
}

// adapterFiles are those of an adapter, by name.
func adapterFiles(t *testing.T) map[string][]byte {
	t.Helper()
	config, err := json.Marshal(map[string]any{"peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": []string{"q_proj"}})
	if err != nil {
		t.Fatal(err)
	}
	return map[string][]byte{"adapter_config.json": config, "adapter_model.safetensors": oneTensor()}
}

// pushAdapter puts the image of an adapter into the local cloud's registry.
func pushAdapter(t *testing.T, files map[string][]byte) {
	t.Helper()
	below := map[string][]byte{}
	for name, content := range files {
		below["data/"+name] = content
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return archived(below) })
	if err != nil {
		t.Fatal(err)
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag(adapterImage)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "adapter.tar")
	if err := tarball.WriteToFile(file, tag, image); err != nil {
		t.Fatal(err)
	}
	if _, err := execute(t.Context(), os.Getenv("LOCALCLOUD"), "push", "--state-dir="+local.state, file); err != nil {
		t.Fatal(err)
	}
}

// archived is the same each time: a layer is read twice, for its digest and to be written.
func archived(files map[string][]byte) (io.ReadCloser, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	var failed error
	for _, name := range slices.Sorted(maps.Keys(files)) {
		content := files[name]
		err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(content))})
		_, writeErr := w.Write(content)
		failed = errors.Join(failed, err, writeErr)
	}
	return io.NopCloser(&out), errors.Join(failed, w.Close())
}

// oneTensor is the smallest safetensors file.
func oneTensor() []byte {
	header := []byte(`{"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight":{"dtype":"F16","shape":[1],"data_offsets":[0,2]}}`)
	return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...), 0, 0)
}
