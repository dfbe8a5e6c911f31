// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/modelberth/modelberth/pkg/cli"
	"github.com/modelberth/modelberth/pkg/cosign"
	"github.com/modelberth/modelberth/pkg/mirror"
	"github.com/modelberth/modelberth/presets"
)

// saveImage writes an image of one file as hack/image does.
func saveImage(t *testing.T, to, arch string, content []byte) {
	t.Helper()
	layer := static.NewLayer(content, types.OCIUncompressedLayer)
	img, err := mutate.AppendLayers(mutate.MediaType(empty.Image, types.OCIManifestSchema1), layer)
	if err == nil {
		img, err = mutate.ConfigFile(img, &v1.ConfigFile{OS: "linux", Architecture: arch, RootFS: rootOf(t, img)})
	}
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	l, err := layout.Write(dir, empty.Index)
	if err == nil {
		err = l.AppendImage(img)
	}
	if err != nil {
		t.Fatal(err)
	}
	tarball, err := packed(dir)
	if err == nil {
		err = os.WriteFile(to, tarball, modeFile)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func rootOf(t *testing.T, img v1.Image) v1.RootFS {
	t.Helper()
	file, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	return file.RootFS
}

// makeRelease makes the parts that need no compiler. The images are stand-ins, and the chart is the project's.
func makeRelease(t *testing.T, images string, key *ecdsa.PrivateKey) *release {
	t.Helper()
	r := &release{settings: settings{
		top: "../..", out: filepath.Join(t.TempDir(), "dist"), images: images, version: "9.8.7",
		registry: "registry.example/modelberth", commit: strings.Repeat("c", 40), key: key,
	}}
	for _, step := range []func(context.Context) error{r.addImages, r.addChart, r.bundle, r.provenance, r.checksums} {
		if err := step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// stand returns stand-ins for the project's images, and a pair of keys.
func stand(t *testing.T) (images string, key *ecdsa.PrivateKey, public []byte) {
	t.Helper()
	images = t.TempDir()
	for _, name := range imageNames() {
		for _, arch := range imageArchitectures() {
			to := filepath.Join(images, name+"-"+arch+".tar")
			if arch == runtime.GOARCH {
				to = filepath.Join(images, name+".tar")
			}
			saveImage(t, to, arch, []byte(name+arch))
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return images, key, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

func TestSameInputSameBytes(t *testing.T) {
	images, key, _ := stand(t)
	first, second := makeRelease(t, images, key), makeRelease(t, images, key)
	if diff := cmp.Diff(first.files, second.files, cmp.AllowUnexported(artifact{})); diff != "" {
		t.Errorf("two releases of one commit differ (-first +second):\n%s", diff)
	}
}

// A release has only programs that another machine can build again.
func TestProgramsArePortable(t *testing.T) {
	for _, tc := range []struct {
		reason string
		flags  []string
		want   string
	}{
		{"without directories of this machine", []string{"-trimpath"}, ""},
		{"with its directories", nil, "the program contains directories of the machine that built it: build it with go build -trimpath"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			dir := t.TempDir()
			source, program := filepath.Join(dir, "main.go"), filepath.Join(dir, "program")
			if err := os.WriteFile(source, []byte("package main\n\nfunc main() {}\n"), modeFile); err != nil {
				t.Fatal(err)
			}
			args := append([]string{"build", "-o", program}, tc.flags...)
			if _, err := command(t.Context(), dir, []string{"GOFLAGS="}, "go", append(args, source)...); err != nil {
				t.Fatal(err)
			}
			info, err := buildinfo.ReadFile(program)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if err := checkPortable(info); err != nil {
				got = err.Error()
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// The command of a mirror names the chart's registry, and the namespace of the other pages.
func TestMirrorSaysHowToInstall(t *testing.T) {
	images, key, public := stand(t)
	made := makeRelease(t, images, key)
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	to, keyFile := strings.TrimPrefix(server.URL, "http://")+"/mirror", filepath.Join(t.TempDir(), "release.pub")
	if err := os.WriteFile(keyFile, public, modeFile); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	root := cli.New(cli.World{Out: &out, Err: io.Discard, Getenv: func(string) string { return "" }, Presets: presets.FS()})
	root.SetArgs([]string{"mirror", filepath.Join(made.out, "modelberth-9.8.7-bundle.tar"), to, "--key", keyFile, "--insecure"})
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, got, _ := strings.Cut(out.String(), "\n\n")
	want := fmt.Sprintf("Install with:\n  helm install modelberth oci://%s/charts/modelberth --version 9.8.7 --namespace modelberth-system --create-namespace "+
		"--set registry=%s --set 'clouds={CLOUD}'\n", to, to)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The chart from a mirror renders the mirror's images by digest. Everything in the mirror has a signature in cosign's
// form.
func TestInstallFromMirror(t *testing.T) {
	helm := os.Getenv("HELM")
	if helm == "" {
		t.Skip("HELM is not set: run make test-unit")
	}
	images, key, public := stand(t)
	made := makeRelease(t, images, key)
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	to := strings.TrimPrefix(server.URL, "http://") + "/mirror"
	keys, err := cosign.ParseKeys(string(public))
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := mirror.Open(filepath.Join(made.out, "modelberth-9.8.7-bundle.tar"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bundle.Close() })
	if err := bundle.Verify(keys); err != nil {
		t.Fatal(err)
	}
	target := mirror.Target{Registry: to, Insecure: true, Keychain: authn.DefaultKeychain}
	if err := bundle.Push(t.Context(), target, func(string, mirror.Entry) {}); err != nil {
		t.Fatal(err)
	}

	cmd := exec.CommandContext(t.Context(), helm, "template", "modelberth", "oci://"+to+"/charts/modelberth", "--version", "9.8.7",
		"--plain-http", "--kube-version", "1.35.0", "--set", "registry="+to, "--set", "clouds={azure}")
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+t.TempDir(), "HELM_CONFIG_HOME="+t.TempDir(), "HELM_DATA_HOME="+t.TempDir())
	rendered, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, rendered)
	}
	found := regexp.MustCompile(regexp.QuoteMeta(to)+`/(modelberth-\w+)@(sha256:\w+)`).FindAllStringSubmatch(string(rendered), -1)
	named := map[string]bool{}
	for _, match := range found {
		named[match[1]] = true
		ref, err := name.ParseReference(match[0], name.Insecure)
		if err != nil {
			t.Fatal(err)
		}
		index, err := remote.Index(ref)
		if err != nil {
			t.Fatalf("the chart names %s: %v", match[0], err)
		}
		manifest, err := index.IndexManifest()
		if err != nil || len(manifest.Manifests) != len(imageArchitectures()) {
			t.Errorf("%s has %d platforms, want %d: %v", match[0], len(manifest.Manifests), len(imageArchitectures()), err)
		}
	}
	if want := map[string]bool{"modelberth-controller": true, "modelberth-agent": true}; !cmp.Equal(want, named) {
		t.Errorf("the rendered chart names the images %v, want %v", named, want)
	}
	// The product's own verifier reads the signatures from the registry, as cosign does.
	for _, content := range made.contents {
		artifact := cosign.Artifact{Reference: to + "/" + content.reference, Keychain: authn.DefaultKeychain, HTTP: server.Client().Transport}
		got, err := cosign.Verify(t.Context(), artifact, cosign.Requirement{Field: "key", Keys: keys})
		if want := "@" + content.digest.String(); err != nil || !strings.HasSuffix(got, want) {
			t.Errorf("verifying %s: %q, %v; want …%s", content.reference, got, err, want)
		}
	}
}

func TestProvenanceNamesEverything(t *testing.T) {
	images, key, _ := stand(t)
	made := makeRelease(t, images, key)
	data, err := os.ReadFile(filepath.Join(made.out, "provenance.intoto.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var envelope struct {
		PayloadType string
		Payload     []byte
		Signatures  []struct{ Sig []byte }
	}
	if err := json.Unmarshal(data, &envelope); err != nil {
		t.Fatal(err)
	}
	message := fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(envelope.PayloadType), envelope.PayloadType, len(envelope.Payload), envelope.Payload)
	if len(envelope.Signatures) != 1 || !isSignedBy(key, message, envelope.Signatures[0].Sig) {
		t.Error("the envelope is not signed by the key")
	}
	var statement struct {
		Subject   []subject
		Predicate struct {
			BuildDefinition struct {
				ResolvedDependencies []struct{ Digest map[string]string }
			}
		}
	}
	if err := json.Unmarshal(envelope.Payload, &statement); err != nil {
		t.Fatal(err)
	}
	if got := statement.Predicate.BuildDefinition.ResolvedDependencies[0].Digest["gitCommit"]; got != made.commit {
		t.Errorf("the statement names commit %q, want %q", got, made.commit)
	}
	named := map[string]string{}
	for _, s := range statement.Subject {
		named[s.Name] = s.Digest["sha256"]
	}
	for _, file := range made.files {
		isLater := strings.HasPrefix(file.name, "SHA256SUMS") || strings.HasPrefix(file.name, "provenance")
		if !isLater && named[file.name] != file.sha256 {
			t.Errorf("%s is named with checksum %q, want %q", file.name, named[file.name], file.sha256)
		}
	}
	for _, content := range made.contents {
		if named[content.reference] != content.digest.Hex {
			t.Errorf("%s is named with digest %q, want %q", content.reference, named[content.reference], content.digest.Hex)
		}
	}
}

func TestChecksumsAreSigned(t *testing.T) {
	images, key, _ := stand(t)
	made := makeRelease(t, images, key)
	sums, err := os.ReadFile(filepath.Join(made.out, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	check := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "SHA256SUMS")
	check.Dir = made.out
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("sha256sum: %v\n%s", err, out)
	}
	encoded, err := os.ReadFile(filepath.Join(made.out, "SHA256SUMS.sig"))
	if err != nil {
		t.Fatal(err)
	}
	signature, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(encoded)))
	if err != nil || !isSignedBy(key, sums, signature) {
		t.Errorf("SHA256SUMS is not signed by the key: %v", err)
	}
}

func isSignedBy(key *ecdsa.PrivateKey, message, signature []byte) bool {
	sum := sha256.Sum256(message)
	return ecdsa.VerifyASN1(&key.PublicKey, sum[:], signature)
}

func TestSetLeavesOtherBytesAlone(t *testing.T) {
	const before = "# why\nregistry: \"\"\nimage:\n  repository: \"\" \n  digest: \"\"\nlist: [a,  b]\n"
	const after = "# why\nregistry: \"r\"\nimage:\n  repository: \"\" \n  digest: \"d\"\nlist: [a,  b]\n"
	got, err := set([]byte(before), map[string]string{"registry": "r", "image.digest": "d"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(after, string(got)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if _, err := set([]byte(before), map[string]string{"image.name": "x"}); err == nil {
		t.Error("a value that is not there was set")
	}
}

func TestBillOfThisProgram(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r := &release{settings: settings{out: t.TempDir(), version: "9.8.7"}}
	if err := r.bill("release", program); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(r.out, "sbom", "release.cdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"specVersion": "1.6"`, `"pkg:golang/github.com/google/go-containerregistry@v`, `"name": "stdlib"`} {
		if !bytes.Contains(data, []byte(want)) {
			t.Errorf("the bill of materials does not contain %s", want)
		}
	}
}

// TestReleasedCommandSaysItsVersion runs the program of a release. The commit need not have a tag yet.
func TestReleasedCommandSaysItsVersion(t *testing.T) {
	r := &release{settings: settings{top: "../..", version: "9.8.7"}}
	program := filepath.Join(t.TempDir(), "kubectl-berth")
	if err := r.build(t.Context(), platform{runtime.GOOS, runtime.GOARCH}, "./cmd/kubectl-berth", program); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), program, "version").CombinedOutput()
	if err != nil || string(out) != "v9.8.7\n" {
		t.Errorf("version: %q, %v; want v9.8.7", out, err)
	}
}
