// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/modelberth/modelberth/pkg/calibration"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/render"
)

// ticking is a clock that advances by 100 ms at each reading.
type ticking struct{ *clocktesting.FakeClock }

func (c ticking) Since(began time.Time) time.Duration {
	c.Step(100 * time.Millisecond)
	return c.FakeClock.Since(began)
}

// signKey writes a private key, and returns its file and the key.
func signKey(t *testing.T) (string, ed25519.PrivateKey) {
	t.Helper()
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return file, key
}

// benched returns a cluster with a serving Workspace that answers with two tokens.
func benched(t *testing.T) *cluster {
	t.Helper()
	c, _ := serves(t, func(w http.ResponseWriter, _ *http.Request, _ int) {
		stream(w, `{"content":"a"}`, `{"content":"b"}`)
		fmt.Fprint(w, `data: {"choices":[],"usage":{"prompt_tokens":12,"completion_tokens":2}}`+"\n\n"+done)
	})
	object := revision(t, 2, 1.5, nil)
	var pinned render.Revision
	if err := json.Unmarshal(object.Data.Raw, &pinned); err != nil {
		t.Fatal(err)
	}
	pinned.Plan.Artifact = &model.Artifact{Repo: "org/Small", Revision: strings.Repeat("a", 40), Quantization: "bf16"}
	pinned.Plan.MaxNumSeqs, pinned.Plan.MaxBatchedTokens, pinned.Plan.GPUMemoryUtilization = 256, 2048, 0.9
	raw, err := json.Marshal(pinned)
	if err != nil {
		t.Fatal(err)
	}
	object.Data.Raw = raw
	c.objects = append(c.objects, object)
	c.pods.log = func(types.NamespacedName, *corev1.PodLogOptions) (string, error) {
		return "INFO [gpu_worker.py:1] Available KV cache memory: 5.25 GiB\nINFO Available KV cache memory: 5.12 GiB\n", nil
	}
	return c
}

// TestBenchExport adds a signed run to those in the file.
func TestBenchExport(t *testing.T) {
	keyFile, key := signKey(t)
	file := filepath.Join(t.TempDir(), "mine.yaml")
	public := publicKey(t, key)
	for minute := range 2 {
		c := benched(t)
		clock := ticking{clocktesting.NewFakeClock(noon.Add(time.Duration(minute) * time.Minute))}
		got := c.run(t, session{clock: clock}, "bench", "chat", "--requests", "4", "--concurrency", "1",
			"--input-tokens", "12", "--output-tokens", "2", "-o", "json", "--export", file, "--sign-key", keyFile, "--source", "our lab")
		want := fmt.Sprintf("Wrote %s, signed by %s.\n", file, calibration.EncodeKey(public))
		if got.Code != 0 || got.Err != want {
			t.Fatalf("%+v", got)
		}
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	runs, err := calibration.Open(data, []ed25519.PublicKey{public})
	if err != nil || len(runs) != 2 {
		t.Fatalf("%d runs, %v", len(runs), err)
	}
	want := catalog.Measurement{
		Name:   "Small-A24-tp1-12x2-c1-" + noon.UTC().Format("20060102") + "T" + runs[0].Name[len(runs[0].Name)-6:],
		Engine: "vllm", Version: "0.31.0", Model: "org/Small", Revision: strings.Repeat("a", 40), Quantization: "bf16", GPU: "A24",
		TensorParallel: 1, InputTokens: 12, OutputTokens: 2, Concurrency: 1, TTFTMillis: 100, TPOTMillis: 200,
		OutputTokensPerSecond: 8 / 1.3, Source: "our lab", Date: noon.UTC().Format("2006-01-02"),
		Memory: catalog.MeasuredMemory{KVCacheGiB: 5.12, MaxModelLen: 8192, MaxNumSeqs: 256, MaxBatchedTokens: 2048, Utilization: 0.9},
	}
	if diff := cmp.Diff(want, runs[0], cmpopts.EquateApprox(1e-9, 0)); diff != "" {
		t.Errorf("run (-want +got):\n%s", diff)
	}
}

// TestBenchExportErrors checks that missing input is reported before the measurement, if possible.
func TestBenchExportErrors(t *testing.T) {
	keyFile, _ := signKey(t)
	file := filepath.Join(t.TempDir(), "mine.yaml")
	foreign := filepath.Join(t.TempDir(), "foreign.yaml")
	if err := os.WriteFile(foreign, []byte("apiVersion: v1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ reason, args, want string }{
		{"no key", "--export " + file, "--export needs --sign-key"},
		{"no file", "--sign-key " + keyFile, "--sign-key, --gpu and --source need --export FILE"},
		{"no such key", "--export " + file + " --sign-key " + file, "--sign-key: open"},
		{"no key in it", "--export " + file + " --sign-key " + foreign, "it is not an unencrypted private key in PEM"},
		{"another GPU's name", "--export " + file + " --sign-key " + keyFile + " --gpu A25", `--gpu: "A25" is not the name of a GPU`},
		{"a file with other content", "--export " + foreign + " --sign-key " + keyFile, "is not a calibration file"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			args := append([]string{"bench", "chat", "--requests", "1", "--concurrency", "1", "-o", "json"}, strings.Fields(tc.args)...)
			got := benched(t).run(t, session{clock: ticking{clocktesting.NewFakeClock(noon)}}, args...)
			if got.Code == 0 || !strings.Contains(got.Err, tc.want) {
				t.Errorf("%+v, want %q", got, tc.want)
			}
		})
	}
}

// A plan uses only files signed by the named key.
func TestPlanWithCalibration(t *testing.T) {
	_, key := signKey(t)
	run := catalog.Measurement{
		Name: "mine", Engine: "vllm", Version: "0.31.0", Model: "meta-llama/Llama-3.1-8B-Instruct", Quantization: "bf16", GPU: "A10",
		TensorParallel: 1, InputTokens: 1024, OutputTokens: 256, Concurrency: 4, TTFTMillis: 500, TPOTMillis: 32,
		OutputTokensPerSecond: 4 * 256 / (0.5 + 255*0.032), Source: "made up", Date: "2026-11-24",
	}
	f := calibration.File{SchemaVersion: calibration.SchemaVersion, Measurements: []catalog.Measurement{run}}
	if err := f.Sign(key); err != nil {
		t.Fatal(err)
	}
	data, err := f.Encode()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "mine.yaml")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	plan := func(args ...string) ran {
		return shipped(t, append([]string{"plan", "--model", "llama-3.1-8b-instruct", "--instance-type", "Standard_NV36ads_A10_v5"}, args...)...)
	}
	if got := plan(); got.Code != 0 || !strings.Contains(got.Out, "out (estimated)") {
		t.Fatalf("%+v", got)
	}
	if got := plan("--calibration", file, "--calibration-key", f.Signature.Key); got.Code != 0 || !strings.Contains(got.Out, "out (measured)") {
		t.Errorf("%+v", got)
	}
	stranger := calibration.EncodeKey(publicKey(t, ed25519.NewKeyFromSeed(append(make([]byte, 31), 1))))
	for _, tc := range []struct {
		reason string
		args   []string
		want   string
	}{
		{"no key is named", []string{"--calibration", file}, "is not one of the trusted keys"},
		{"another key is named", []string{"--calibration", file, "--calibration-key", stranger}, "is not one of the trusted keys"},
		{"no key at all", []string{"--calibration", file, "--calibration-key", "secret"}, `"secret" is not an Ed25519 public key`},
		{"no file", []string{"--calibration", file + ".old"}, "no such file"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			if got := plan(tc.args...); got.Code == 0 || !strings.Contains(got.Err, tc.want) {
				t.Errorf("%+v, want %q", got, tc.want)
			}
		})
	}
}

// publicKey returns the public key of a private key.
func publicKey(t *testing.T, key ed25519.PrivateKey) ed25519.PublicKey {
	t.Helper()
	public, ok := key.Public().(ed25519.PublicKey)
	if !ok {
		t.Fatal("the key has no public part")
	}
	return public
}
