// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planning

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/cosign"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/progress"
)

// publicKey returns a public key in PEM, a different one for each seed.
func publicKey(t *testing.T, seed byte) string {
	t.Helper()
	key := ed25519.NewKeyFromSeed(append(make([]byte, ed25519.SeedSize-1), seed))
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

func keysOf(t *testing.T, text string) []cosign.Key {
	t.Helper()
	keys, err := cosign.ParseKeys(text)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// demandsOf returns the fingerprint of some requirements. roots are the roots of trust for identities.
func demandsOf(t *testing.T, roots string, required ...cosign.Requirement) string {
	t.Helper()
	out, err := cosign.Fingerprint(required, roots)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

const (
	oldDigest = "a.example/model@sha256:0000000000000000000000000000000000000000000000000000000000000001"
	newDigest = "a.example/model@sha256:0000000000000000000000000000000000000000000000000000000000000002"
)

// asked is a registry in which every artifact is signed, or none if err is set.
type asked struct {
	err error
	// references are the verified references, and fields the fields of their requirements.
	references, fields []string
}

func (a *asked) verify(_ context.Context, artifact cosign.Artifact, _ []byte, required []cosign.Requirement) (string, error) {
	a.references = append(a.references, artifact.Reference)
	for _, requirement := range required {
		field := requirement.Field
		if requirement.Identity != nil {
			field += " of " + requirement.Identity.Subject
		}
		a.fields = append(a.fields, field)
	}
	return newDigest, a.err
}

func signedWorkspace(verify *v1beta1.OCIVerification) *v1beta1.Workspace {
	ws := workspace()
	ws.Inference = &v1beta1.InferenceSpec{Preset: &v1beta1.PresetSpec{Name: "phi-4"}, Weights: &v1beta1.WeightsSource{
		OCI: &v1beta1.OCIWeights{Reference: "a.example/model:v1", PullSecret: "pull", Verify: verify},
	}}
	return ws
}

// reads counts the reads of objects by name.
type reads struct {
	Objects

	of map[string]int
}

func (r *reads) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if r.of == nil {
		r.of = map[string]int{}
	}
	r.of[key.Name]++
	return r.Objects.Get(ctx, key, into, options...)
}

// TestArtifactIsVerifiedBeforeItIsBoughtFor: weights without the required signature are refused before a purchase, and
// plans name the signed artifact.
func TestArtifactIsVerifiedBeforeItIsBoughtFor(t *testing.T) {
	ours := publicKey(t, 1)
	theirs := keysOf(t, publicKey(t, 2))
	byUs, byThem := cosign.Requirement{Keys: keysOf(t, ours)}, cosign.Requirement{Keys: theirs}
	byIdentity := cosign.Requirement{Identity: &cosign.Identity{Issuer: "https://accounts.example", Subject: "me@example"}}
	verified := func(required ...cosign.Requirement) *planner.VerifiedWeights {
		return &planner.VerifiedWeights{Reference: newDigest, Demands: demandsOf(t, "", required...)}
	}
	inline := &v1beta1.OCIVerification{PublicKey: ours}
	keyless := &v1beta1.OCIVerification{Keyless: &v1beta1.KeylessIdentity{Issuer: "https://accounts.example", Subject: "me@example"}}
	const publicKeyField = "inference.weights.oci.verify.publicKey"
	pinned := &planner.VerifiedWeights{Reference: oldDigest, Demands: demandsOf(t, "", byUs)}
	objects := []client.Object{
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "signer"}, Data: map[string]string{signerKey: ours}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "team-b", Name: "foreign"}, Data: map[string]string{signerKey: ours}},
		&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "pull"}, Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{}`)},
		},
	}
	for _, tc := range []struct {
		reason     string
		verify     *v1beta1.OCIVerification
		signers    []cosign.Key
		identities bool
		registries string
		pinned     *planner.VerifiedWeights
		err        error
		want       *planner.VerifiedWeights
		asked      string
		fields     []string
		stalled    string
	}{
		{reason: "nobody demands a signature", registries: "a.example"},
		{
			reason: "the Workspace does", verify: inline, registries: "a.example", asked: "a.example/model:v1", fields: []string{publicKeyField},
			want: verified(byUs),
		},
		{
			reason: "by a ConfigMap", verify: &v1beta1.OCIVerification{PublicKeyConfigMap: "signer"}, registries: "a.example",
			asked: "a.example/model:v1", fields: []string{"inference.weights.oci.verify.publicKeyConfigMap"},
			want: verified(byUs),
		},
		{
			reason: "by another namespace's ConfigMap", verify: &v1beta1.OCIVerification{PublicKeyConfigMap: "foreign"}, registries: "a.example",
			stalled: `names ConfigMap "foreign", which does not exist in namespace "team-a" or lacks the key cosign.pub`,
		},
		{
			reason: "the administrator does", signers: theirs, registries: "a.example", asked: "a.example/model:v1", fields: []string{administrator},
			want: verified(byThem),
		},
		{
			reason: "both do", verify: inline, signers: theirs, registries: "a.example", asked: "a.example/model:v1",
			fields: []string{administrator, publicKeyField},
			want:   verified(byThem, byUs),
		},
		{
			reason: "of an identity", verify: keyless, identities: true, registries: "a.example", asked: "a.example/model:v1",
			fields: []string{"inference.weights.oci.verify.keyless of me@example"}, want: verified(byIdentity),
		},
		{
			reason: "of an identity and with the administrator's key", verify: keyless, identities: true, signers: theirs, registries: "a.example",
			asked: "a.example/model:v1", fields: []string{administrator, "inference.weights.oci.verify.keyless of me@example"},
			want: verified(byThem, byIdentity),
		},
		{
			reason: "of an identity that nobody can verify", verify: keyless, registries: "a.example",
			stalled: "have the administrator set weights.oci.keyless.trustedRootConfigMap",
		},
		{
			reason: "no key", verify: &v1beta1.OCIVerification{PublicKey: "cosign.pub"}, registries: "a.example",
			stalled: publicKeyField + " is unusable: it has no PEM block",
		},
		{
			reason: "the signature is another's", verify: inline, registries: "a.example", err: errors.New("none of the signatures"),
			asked: "a.example/model:v1", fields: []string{publicKeyField},
			stalled: `inference.weights.oci.reference is "a.example/model:v1", which cannot be verified: none of the signatures`,
		},
		{
			reason: "a registry that the administrator does not name is not asked", verify: inline, registries: "b.example",
			stalled: "the controller may read only b.example: have the administrator add its registry (chart value weights.oci.registries)",
		},
		{
			reason: "other machines are no other weights, whatever the tag names now", verify: inline, registries: "a.example", pinned: pinned,
			want: pinned,
		},
		{
			reason: "what was pinned is verified with the keys that the administrator has added since", verify: inline, signers: theirs,
			registries: "a.example", pinned: pinned, asked: pinned.Reference, fields: []string{administrator, publicKeyField},
			want: verified(byUs, byThem),
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			hub := &asked{err: tc.err}
			reads := &reads{Objects: fake.NewClientBuilder().WithObjects(objects...).Build()}
			signatures := Signatures{
				Registries: []string{tc.registries}, Signers: tc.signers, Verify: hub.verify, VerifiesIdentities: tc.identities,
			}
			demand := &Demand{Workspace: signedWorkspace(tc.verify)}
			var err error
			demand.credentials, err = (&ClusterSupply{Objects: reads, Signatures: signatures}).Check(t.Context(), demand.Workspace, model.Model{})
			if err != nil {
				t.Fatal(err)
			}
			if tc.pinned != nil {
				demand.replaces = &planner.Plan{Weights: tc.pinned}
			}
			plan := planner.Plan{}
			err = NewWeights(reads, nil, signatures, "").Pin(t.Context(), demand, &plan)
			if reads.of["pull"] != 1 {
				t.Errorf("the pull Secret was read %d times, want once", reads.of["pull"])
			}
			stalled, isStalled := errors.AsType[*progress.StalledError](err)
			switch {
			case isStalled != (tc.stalled != "") || err != nil && !isStalled:
				t.Fatalf("Pin() = %v, want stalled for %q", err, tc.stalled)
			case isStalled && (stalled.Reason != v1beta1.ReasonWeightsNotVerified || !strings.Contains(stalled.Message, tc.stalled)):
				t.Errorf("stalled for %v, want %s with %q", err, v1beta1.ReasonWeightsNotVerified, tc.stalled)
			}
			if diff := cmp.Diff(tc.want, plan.Weights); diff != "" {
				t.Errorf("weights (-want +got):\n%s", diff)
			}
			if got := strings.Join(hub.references, ","); got != tc.asked {
				t.Errorf("the registry was asked for %q, want %q", got, tc.asked)
			}
			if diff := cmp.Diff(tc.fields, hub.fields); diff != "" {
				t.Errorf("required keys (-want +got):\n%s", diff)
			}
		})
	}
}

// TestUnverifiedWeightsBuyNothing covers plans accepted before the administrator required signatures, and sources that
// cannot be verified. Neither may buy machines.
func TestUnverifiedWeightsBuyNothing(t *testing.T) {
	signers, former := keysOf(t, publicKey(t, 2)), keysOf(t, publicKey(t, 3))
	users := keysOf(t, publicKey(t, 4))
	identity := cosign.Requirement{Identity: &cosign.Identity{Issuer: "https://accounts.example", Subject: "me@example"}}
	under := func(roots string, required ...cosign.Requirement) *planner.VerifiedWeights {
		return &planner.VerifiedWeights{Demands: demandsOf(t, roots, required...)}
	}
	by := func(keys []cosign.Key) cosign.Requirement { return cosign.Requirement{Keys: keys} }
	demanding := func(verify v1beta1.OCIVerification) *v1beta1.InferenceSpec { return signedWorkspace(&verify).Inference }
	inMap := demanding(v1beta1.OCIVerification{PublicKeyConfigMap: "signer"})
	keyless := demanding(v1beta1.OCIVerification{Keyless: &v1beta1.KeylessIdentity{Issuer: "https://accounts.example", Subject: "me@example"}})
	inference := func(change func(*v1beta1.InferenceSpec)) *v1beta1.InferenceSpec {
		in := signedWorkspace(nil).Inference
		if change != nil {
			change(in)
		}
		return in
	}
	for _, tc := range []struct {
		reason  string
		in      *v1beta1.InferenceSpec
		signers []cosign.Key
		weights *planner.VerifiedWeights
		want    string
	}{
		{"nobody demands it", inference(nil), nil, nil, ""},
		{"verified with these keys", inference(nil), signers, under("", by(signers)), ""},
		{"not verified", inference(nil), signers, nil, "the weights were not verified"},
		{"verified with the user's key alone", inference(nil), signers, under("", by(users)), "the weights were not verified"},
		{"verified with a key that was withdrawn", inference(nil), signers, under("", by(former)), "the weights were not verified"},
		{"an earlier version noted no demands", inference(nil), signers, &planner.VerifiedWeights{}, "the weights were not verified"},
		{"verified with the user's key in its ConfigMap", inMap, nil, under("", by(users)), ""},
		{"the ConfigMap has another key since", inMap, nil, under("", by(former)), "the weights were not verified"},
		{"the administrator demands a signature since", inMap, signers, under("", by(users)), "the weights were not verified"},
		{"the administrator's demand has gone", inMap, nil, under("", by(users), by(signers)), "the weights were not verified"},
		{
			"the ConfigMap has gone", demanding(v1beta1.OCIVerification{PublicKeyConfigMap: "gone"}), nil, under("", by(users)),
			"which does not exist in namespace",
		},
		{"verified with an identity", keyless, nil, under("roots", identity), ""},
		{"the roots of trust have changed since", keyless, nil, under("former roots", identity), "the weights were not verified"},
		{"the hub has no signatures", inference(func(in *v1beta1.InferenceSpec) { in.Weights = nil }), signers, nil, ""},
		{"an image that is mounted", inference(func(in *v1beta1.InferenceSpec) {
			in.Weights = &v1beta1.WeightsSource{Image: &v1beta1.ImageWeights{Reference: "a.example/model:v1"}}
		}), signers, nil, "use inference.weights.oci"},
		{"an adapter's image", inference(func(in *v1beta1.InferenceSpec) {
			in.Adapters = []v1beta1.AdapterSpec{{Source: &v1beta1.DataSource{Image: "a.example/adapter:v1"}}}
		}), signers, under("", by(signers)), "inference.adapters[0].source.image"},
		{"a template has no weights of ours", inference(func(in *v1beta1.InferenceSpec) {
			*in = v1beta1.InferenceSpec{Template: &corev1.PodTemplateSpec{}}
		}), signers, nil, ""},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			ws := workspace()
			ws.Inference = tc.in
			objects := fake.NewClientBuilder().WithObjects(&corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "signer"}, Data: map[string]string{signerKey: publicKey(t, 4)},
			}).Build()
			weights := NewWeights(objects, nil, Signatures{
				Signers: tc.signers, VerifiesIdentities: true, TrustedRoots: func() (string, error) { return "roots", nil },
			}, "")
			got, err := weights.Unverified(t.Context(), ws, &planner.Plan{Weights: tc.weights})
			if err != nil {
				t.Fatal(err)
			}
			if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
				t.Errorf("Unverified() = %q, want %q", got, tc.want)
			}
		})
	}
}
