// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	appsv1 "k8s.io/api/apps/v1"
	k8stypes "k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// The signature of the local cloud's model by an identity, and its roots of trust. verifier/ makes both
// (TestSignedForTheCluster) for the digest in the file next to them.
const (
	keylessDir = "testdata/keyless"
	signer     = "https://ci.example/models/release.yml@refs/tags/v1"
	issuer     = "https://accounts.example"
	bundleType = types.MediaType("application/vnd.dev.sigstore.bundle.v0.3+json")
)

// signedBy is a Workspace whose weights need the signature of an identity: its name, the tag and the subject.
const signedBy = `apiVersion: kaito.sh/v1beta1
kind: Workspace
metadata: {name: %[1]s}
inference:
  preset: {name: tiny-chat}
  weights:
    oci:
      reference: "` + artifacts + `:%[2]s"
      verify: {keyless: {issuer: "` + issuer + `", subject: "%[3]s"}}
---
`

// TestSignatures runs modelberth-verifier beside the controller: a model signed by an identity is served by its digest,
// and for others no machine is bought; their conditions explain it.
func TestSignatures(t *testing.T) {
	file := hubFile(t, tinyRepository, tinyFile)
	digest := pushSigned(t, "signed", file)
	pushFile(t, "unsigned", tinyFile, append([]byte("x"), file[1:]...))
	kubectl(t, "create", "configmap", "sigstore-roots", "--namespace="+systemNamespace,
		"--from-file="+filepath.Join(keylessDir, "trusted_root.json"))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
		defer cancel()
		if _, err := execute(ctx, local.kubectl, "delete", "configmap", "sigstore-roots", "--namespace="+systemNamespace); err != nil {
			t.Errorf("cleaning up: %v", err)
		}
	})
	configure(t, "weights.oci.registries={"+strings.TrimSuffix(artifacts, "/weights")+"}",
		"weights.oci.keyless.trustedRootConfigMap=sigstore-roots",
		"weights.oci.keyless.image.repository=registry.local:5000/modelberth/verifier", "weights.oci.keyless.image.tag=dev")
	ns, start := namespace(t), time.Now()
	apply(t, ns, fmt.Sprintf(signedBy, "signed", "signed", signer)+
		fmt.Sprintf(signedBy, "by-somebody-else", "signed", "https://ci.example/else.yml@refs/tags/v1")+
		fmt.Sprintf(signedBy, "by-nobody", "unsigned", signer))
	for refused, why := range map[string]string{"by-somebody-else": "certificate identity", "by-nobody": "it has no signature"} {
		key := k8stypes.NamespacedName{Namespace: ns, Name: refused}
		condition := waitCondition(t, key, v1beta1.ConditionPlanned, v1beta1.ReasonWeightsNotVerified, seenTimeout)
		expectText(t, condition.Message, why)
		t.Logf("%s: %s", refused, condition.Message)
	}
	ws := waitReady(t, ns, "signed")
	elapsed(t, "weights that an identity has signed, from manifest to answers", start)
	expectAnswers(t, ws, tinyModel)
	set := &appsv1.StatefulSet{}
	if err := local.client.Get(t.Context(), keyOf(ws), set); err != nil {
		t.Fatal(err)
	}
	expectText(t, strings.Join(set.Spec.Template.Spec.InitContainers[0].Args, " "), digest.String())
	local.ledger.expect(t, ws, 1)
	for _, refused := range []string{"by-somebody-else", "by-nobody"} {
		local.ledger.expect(t, workspace(t, ns, refused), 0)
	}
}

// pushSigned pushes the local cloud's model with its signature beside it, and returns its digest.
func pushSigned(t *testing.T, tag string, file []byte) v1.Hash {
	t.Helper()
	artifact := pushFile(t, tag, tinyFile, file)
	of, err := artifact.Digest()
	if err != nil {
		t.Fatal(err)
	}
	signed := strings.TrimSpace(readTestdata(t, "digest"))
	if of.Hex != signed {
		t.Fatalf("the model of the local cloud has changed: write %s to %s/digest and run go test -C ../../verifier -run TestSignedForTheCluster -update",
			of.Hex, keylessDir)
	}
	size, err := artifact.Size()
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := mutate.Append(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), bundleType),
		mutate.Addendum{Layer: static.NewLayer([]byte(readTestdata(t, "bundle.json")), bundleType)})
	if err != nil {
		t.Fatal(err)
	}
	subject := v1.Descriptor{MediaType: types.DockerManifestSchema2, Digest: of, Size: size}
	beside, isImage := mutate.Subject(bundle, subject).(v1.Image)
	if !isImage {
		t.Fatal("no image refers to the artifact")
	}
	repository, err := name.NewRepository(artifacts, name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	at, err := beside.Digest()
	if err != nil {
		t.Fatal(err)
	}
	pushImage(t, repository.Digest(at.String()).Name(), beside)
	return of
}

func readTestdata(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(keylessDir, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
