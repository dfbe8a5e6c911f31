// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"io"
	"log"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	ocitypes "github.com/google/go-containerregistry/pkg/v1/types"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/test/integration/faults"
)

// signedArtifact pushes an artifact with a bundle beside it, and returns its reference and digest.
func signedArtifact(t *testing.T) (reference, digest string) {
	t.Helper()
	const media = "application/vnd.dev.sigstore.bundle.v0.3+json"
	server := httptest.NewServer(registry.New(registry.WithReferrersSupport(true), registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	ref, err := name.ParseReference(strings.TrimPrefix(server.URL, "http://") + "/team/model:v1")
	if err != nil {
		t.Fatal(err)
	}
	model, err := mutate.AppendLayers(empty.Image, static.NewLayer([]byte("weights"), "application/octet-stream"))
	if err != nil {
		t.Fatal(err)
	}
	of, err := model.Digest()
	if err != nil {
		t.Fatal(err)
	}
	bundle := `{"dsseEnvelope":{"payload":"e30=","payloadType":"application/vnd.in-toto+json","signatures":[{"sig":"AA=="}]}}`
	beside, err := mutate.Append(mutate.ConfigMediaType(mutate.MediaType(empty.Image, ocitypes.OCIManifestSchema1), media),
		mutate.Addendum{Layer: static.NewLayer([]byte(bundle), media)})
	if err != nil {
		t.Fatal(err)
	}
	referring, isImage := mutate.Subject(beside, v1.Descriptor{MediaType: ocitypes.DockerManifestSchema2, Digest: of, Size: 1}).(v1.Image)
	if !isImage {
		t.Fatal("no image refers to the artifact")
	}
	besides, err := referring.Digest()
	if err != nil {
		t.Fatal(err)
	}
	for at, image := range map[string]v1.Image{ref.Name(): model, ref.Context().Digest(besides.String()).Name(): referring} {
		to := mustReference(t, at)
		if err := remote.Write(to, image, remote.WithContext(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	return ref.Name(), of.String()
}

func mustReference(t *testing.T, text string) name.Reference {
	t.Helper()
	ref, err := name.ParseReference(text)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// verifier stands in for modelberth-verifier and returns the given answer.
func verifier(t *testing.T, answer *atomic.Value) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, connection)
			said, _ := answer.Load().(string)
			_, _ = io.WriteString(connection, said)
			_ = connection.Close()
		}
	}()
	return socket
}

// TestNothingIsBoughtForAnUnverifiedIdentity: for weights that need an identity's signature, nothing is bought before
// the verifier accepts them. The pods then fetch the verified digest.
func TestNothingIsBoughtForAnUnverifiedIdentity(t *testing.T) {
	w := enter(t)
	reference, digest := signedArtifact(t)
	var answer atomic.Value
	answer.Store(`{"verified":false,"problem":"another issuer"}`)
	o := w.options()
	o.Artifacts.Registries = []string{strings.TrimSuffix(reference, "/team/model:v1")}
	o.Artifacts.VerifierSocket = verifier(t, &answer)
	w.beginWith(t, faults.NewRecorder(), clock.RealClock{}, o)
	ws := plannerForm(w.namespace(t), "chat")
	ws.Resource.Placement = &v1beta1.PlacementSpec{InstanceTypes: []string{dear}}
	ws.Inference.Weights = &v1beta1.WeightsSource{OCI: &v1beta1.OCIWeights{Reference: reference, Verify: &v1beta1.OCIVerification{
		Keyless: &v1beta1.KeylessIdentity{Issuer: "https://accounts.example", SubjectRegExp: `.*@example`},
	}}}
	w.create(t, ws)
	w.untilCondition(t, ws, v1beta1.ConditionPlanned, metav1.ConditionFalse, v1beta1.ReasonWeightsNotVerified)
	if message := condition(ws, v1beta1.ConditionPlanned).Message; !strings.Contains(message, `"another issuer"`) {
		t.Errorf("message %q does not say what the verifier said", message)
	}
	w.checkNothingBought(t, ws)

	answer.Store(`{"verified":true}`)
	before := ws.DeepCopy()
	ws.Annotations = map[string]string{"example.com/again": "true"}
	if err := w.client.Patch(t.Context(), ws, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	w.untilServing(t, ws)
	set := &appsv1.StatefulSet{}
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(ws), set); err != nil {
		t.Fatal(err)
	}
	if fetched := strings.Join(set.Spec.Template.Spec.InitContainers[0].Args, " "); !strings.Contains(fetched, digest) {
		t.Errorf("the agent fetches with %s, want it to name %s", fetched, digest)
	}
	w.remove(t, ws)
}

// TestRollbackIsVerifiedAgain goes back to a stored plan that still has its machine. Its signer is no longer trusted,
// because the administrator replaced the roots of trust. The serving pods continue; pods of the stored plan start once
// it is verified again, with its digest and on the same machine.
func TestRollbackIsVerifiedAgain(t *testing.T) {
	w := enter(t)
	reference, digest := signedArtifact(t)
	var answer atomic.Value
	answer.Store(`{"verified":true}`)
	o := w.options()
	o.Artifacts.Registries = []string{strings.TrimSuffix(reference, "/team/model:v1")}
	o.Artifacts.VerifierSocket = verifier(t, &answer)
	o.Artifacts.TrustedRoot = filepath.Join(t.TempDir(), "trusted_root.json")
	trust := func(roots string) {
		t.Helper()
		if err := os.WriteFile(o.Artifacts.TrustedRoot, []byte(roots), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	trust("former")
	life := w.beginWith(t, faults.NewRecorder(), clock.RealClock{}, o)
	ws := plannerForm(w.namespace(t), "chat")
	ws.Resource.Placement = &v1beta1.PlacementSpec{InstanceTypes: []string{dear}}
	ws.Inference.Weights = &v1beta1.WeightsSource{OCI: &v1beta1.OCIWeights{Reference: reference, Verify: &v1beta1.OCIVerification{
		Keyless: &v1beta1.KeylessIdentity{Issuer: "https://accounts.example", SubjectRegExp: `.*@example`},
	}}}
	w.create(t, ws)
	w.untilServing(t, ws)
	former := ws.Status.Plan.Revision
	w.patch(t, ws, func() { ws.Inference.Engine = &v1beta1.EngineSpec{Args: map[string]v1beta1.EngineArg{"threads": "3"}} })
	w.untilArgs(t, ws, "--threads 3")

	trust("of today")
	answer.Store(`{"verified":false,"problem":"a foreign root"}`)
	w.passes(t, life, ws, 2) // the serving pods stay
	if got := condition(ws, v1beta1.ConditionPlanned); got.Status != metav1.ConditionTrue {
		t.Errorf("new roots of trust alone: %+v", got)
	}
	w.patch(t, ws, func() { ws.Inference.Engine = nil })
	w.untilCondition(t, ws, v1beta1.ConditionPlanned, metav1.ConditionFalse, v1beta1.ReasonWeightsNotVerified)
	w.passes(t, life, ws, 2)
	w.untilArgs(t, ws, "--threads 3")
	if ws.Status.Plan.Revision == former {
		t.Errorf("the accepted revision is %s, whose weights nobody has verified with the roots of today", former)
	}

	answer.Store(`{"verified":true}`)
	w.patch(t, ws, func() { ws.Annotations = map[string]string{"example.com/again": "true"} })
	w.untilCondition(t, ws, v1beta1.ConditionPlanned, metav1.ConditionTrue, "")
	set := &appsv1.StatefulSet{}
	eventually(t, "the pods of the stored plan", func() (bool, string) {
		if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(ws), set); err != nil {
			return false, err.Error()
		}
		args := strings.Join(set.Spec.Template.Spec.InitContainers[0].Args, " ")
		return !strings.Contains(strings.Join(set.Spec.Template.Spec.Containers[0].Args, " "), "--threads 3") && strings.Contains(args, digest), args
	})
	if got := w.karpenter.ClaimsEver(ws.UID); got != 1 {
		t.Errorf("%d machines were bought, want 1", got)
	}
	w.remove(t, ws)
}
