// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// If the tiny model is, on the hub and in the registry: its repository there is under an address, as adapterByAddress.
const (
	tinyRepository = "modelberth/tiny-chat-GGUF"
	tinyFile       = "tiny-chat-f16.gguf"
	artifacts      = "10.231.0.1:5000/e2e/weights"
)

// nodeModels is a directory of nodes, and of the host below a node's disk.
const nodeModels = "e2e-models"

const sourcesManifest = `apiVersion: kaito.sh/v1beta1
kind: Workspace
metadata: {name: artifact}
inference: {preset: {name: tiny-chat}, weights: {oci: {reference: "` + artifacts + `:right"}}}
---
apiVersion: kaito.sh/v1beta1
kind: Workspace
metadata: {name: claim}
inference: {preset: {name: tiny-chat}, weights: {persistentVolumeClaim: {claimName: models}, path: tiny}}
---
apiVersion: kaito.sh/v1beta1
kind: Workspace
metadata: {name: no-claim}
inference: {preset: {name: tiny-chat}, weights: {persistentVolumeClaim: {claimName: nowhere}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: models}
spec: {accessModes: [ReadOnlyMany], storageClassName: "", volumeName: %[1]s, resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: %[1]s}
spec:
  accessModes: [ReadOnlyMany]
  capacity: {storage: 1Gi}
  persistentVolumeReclaimPolicy: Retain
  claimRef: {namespace: %[1]s, name: models}
  hostPath: {path: /var/lib/kubelet/` + nodeModels + `, type: DirectoryOrCreate}
`

// weightSources serves a model from an artifact of a registry and from a filled claim, in a namespace that enforces
// restricted, and reads a sentence about the faults of either.
func weightSources(t *testing.T) {
	ns := namespace(t)
	file := hubFile(t, tinyRepository, tinyFile)
	pushFile(t, "right", tinyFile, file)
	pushFile(t, "lacking", "README.md", []byte("nothing else"))
	pushFile(t, "wrong", tinyFile, append([]byte("x"), file[1:]...))
	start := time.Now()
	apply(t, ns, fmt.Sprintf(sourcesManifest, ns))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
		defer cancel()
		if _, err := execute(ctx, local.kubectl, "delete", "persistentvolume", ns, "--wait=false"); err != nil {
			t.Error(err)
		}
	})
	t.Run("no claim", func(t *testing.T) {
		condition := waitCondition(t, types.NamespacedName{Namespace: ns, Name: "no-claim"}, v1beta1.ConditionPlanned, v1beta1.ReasonClaimNotFound, seenTimeout)
		t.Log(condition.Message)
		local.ledger.expect(t, workspace(t, ns, "no-claim"), 0)
	})
	t.Run("claim", func(t *testing.T) {
		key := types.NamespacedName{Namespace: ns, Name: "claim"}
		t.Log(waitCondition(t, key, v1beta1.ConditionInferenceReady, v1beta1.ReasonWeightsNotFound, readyTimeout).Message)
		fillClaim(t, ns, file)
		replacePod(t, workspace(t, ns, key.Name)) // or the kubelet would wait longer with each try
		ws := waitReady(t, ns, key.Name)
		expectAnswers(t, ws, tinyModel)
	})
	ws := waitReady(t, ns, "artifact")
	elapsed(t, "weights from an artifact and from a claim, the claim filled late, from manifest to answers", start)
	expectAnswers(t, ws, tinyModel)
	for _, tc := range []struct{ tag, reason string }{
		{"none", v1beta1.ReasonWeightsNotFound},
		{"lacking", v1beta1.ReasonWeightsNotFound},
		{"wrong", v1beta1.ReasonWeightsChecksum},
	} {
		t.Run("artifact with the tag "+tc.tag, func(t *testing.T) {
			before := workspace(t, ns, ws.Name).Status.Plan.Revision
			kubectl(t, "patch", "workspace", ws.Name, "--namespace="+ns, "--type=merge",
				fmt.Sprintf(`--patch={"inference": {"weights": {"oci": {"reference": "%s:%s"}}}}`, artifacts, tc.tag))
			waitFor(t, "another revision", seenTimeout, func(context.Context) (bool, error) {
				return workspace(t, ns, ws.Name).Status.Plan.Revision != before, nil
			})
			waitFor(t, "the sentence about tag "+tc.tag, giveUpTimeout, func(context.Context) (bool, error) {
				condition := waitCondition(t, keyOf(ws), v1beta1.ConditionInferenceReady, tc.reason, giveUpTimeout)
				return strings.Contains(condition.Message, strconv.Quote(tc.tag)), nil
			})
			t.Log(waitCondition(t, keyOf(ws), v1beta1.ConditionReady, tc.reason, seenTimeout).Message)
			expectNoEndpoint(t, ws)
		})
	}
	local.ledger.expect(t, ws, 1)
}

// fillClaim puts the model where the claim's volume is on the node of its Workspace.
func fillClaim(t *testing.T, ns string, file []byte) {
	t.Helper()
	pod := &corev1.Pod{}
	if err := local.client.Get(t.Context(), types.NamespacedName{Namespace: ns, Name: "claim-0"}, pod); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(local.state, "nodes", pod.Spec.NodeName, "kubelet", nodeModels, "tiny")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, tinyFile), file, 0o644); err != nil {
		t.Fatal(err)
	}
}

// overSocket carries requests to the local cloud's supervisor, which has the registry and, below /hub, the hub.
func overSocket() *http.Transport {
	return &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(local.state, "cloud.sock"))
	}}
}

// hubFile reads a large file of the local cloud's hub, which keeps it in a store of another address.
func hubFile(t *testing.T, repository, file string) []byte {
	t.Helper()
	client := &http.Client{Transport: overSocket(), CheckRedirect: func(request *http.Request, _ []*http.Request) error {
		request.URL.Path = "/hub" + request.URL.Path
		return nil
	}}
	url := "http://cloud.local/hub/" + repository + "/resolve/main/" + file
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK || len(content) == 0 {
		t.Fatalf("%s of %s: %d bytes, %v", response.Status, file, len(content), err)
	}
	return content
}

// pushFile pushes an artifact of one file, and returns it.
func pushFile(t *testing.T, tag, file string, content []byte) v1.Image {
	t.Helper()
	artifact, err := mutate.Append(empty.Image, mutate.Addendum{
		Layer:       static.NewLayer(content, "application/octet-stream"),
		Annotations: map[string]string{"org.opencontainers.image.title": file},
	})
	if err != nil {
		t.Fatal(err)
	}
	pushImage(t, artifacts+":"+tag, artifact)
	return artifact
}

func pushImage(t *testing.T, reference string, image v1.Image) {
	t.Helper()
	ref, err := name.ParseReference(reference, name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, image, remote.WithTransport(overSocket()), remote.WithContext(t.Context())); err != nil {
		t.Fatal(err)
	}
}
