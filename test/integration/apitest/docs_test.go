// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/modelberth/modelberth/test/docs/pages"
	"github.com/modelberth/modelberth/test/integration/gatewaykinds"
)

const repository = "../../.."

// placeholder is a name that the reader replaces. An object cannot have it.
var placeholder = regexp.MustCompile(`\b(NAME|NAMESPACE|SERVICEACCOUNT|UID)\b`)

// blocksOf returns the blocks of all pages in a language.
func blocksOf(t *testing.T, language string) []pages.Block {
	t.Helper()
	all, err := pages.Read(repository)
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(pages.Blocks(all), func(b pages.Block) bool { return b.Language != language || strings.HasPrefix(b.Text, "#!") })
}

// callsOfKubectl returns the calls of kubectl in a block of shell commands, except calls of our plugin.
func callsOfKubectl(t *testing.T, b pages.Block) []pages.Call {
	t.Helper()
	calls, err := pages.Record(t.Context(), b)
	if err != nil {
		t.Errorf("%s: %v", b.Page, err)
	}
	return slices.DeleteFunc(calls, func(c pages.Call) bool { return c.Program != "kubectl" || c.Args[0] == "berth" })
}

// TestManifestsOfPages creates every object in the pages as a dry run, with strict validation of its fields. Objects of
// other projects have no definition here.
func TestManifestsOfPages(t *testing.T) {
	installSets(t)
	foreign := []string{"AKSNodeClass", "ClusterTriggerAuthentication", "ComputeClass", "DestinationRule", "EC2NodeClass", "Kustomization", "NodeClass", "ScaledObject"}
	var manifests []pages.Block
	manifests = append(manifests, blocksOf(t, "yaml")...)
	for _, b := range blocksOf(t, "sh") {
		for _, call := range callsOfKubectl(t, b) {
			if call.In != "" {
				manifests = append(manifests, pages.Block{Page: b.Page, Text: call.In})
			}
		}
	}
	created := 0
	for _, b := range manifests {
		for document := range strings.SplitSeq(b.Text, "\n---\n") {
			object, err := parse(document)
			if err != nil || object.GetKind() == "" {
				continue // a part of an object, or values of the chart
			}
			err = createAsDryRun(t.Context(), object)
			switch {
			case meta.IsNoMatchError(err) && slices.Contains(foreign, object.GetKind()):
			case err != nil:
				t.Errorf("%s: %v\n%s", b.Page, err, document)
			default:
				created++
			}
		}
	}
	if created < 5 {
		t.Errorf("%d objects were created: does the test still know what manifests look like?", created)
	}
}

func createAsDryRun(ctx context.Context, object *unstructured.Unstructured) error {
	namespaced, err := api.IsObjectNamespaced(object)
	if err != nil {
		return err
	}
	if namespaced {
		object.SetNamespace("accepted")
	}
	return api.Create(ctx, object, client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict))
}

// TestCommandsOfPages runs every call of kubectl in the pages against the API server: each flag, kind and patch must be
// right. Commands that write run as a dry run. Their objects need not exist.
func TestCommandsOfPages(t *testing.T) {
	installSets(t)
	if _, err := envtest.InstallCRDs(api.config, envtest.CRDInstallOptions{Paths: gatewaykinds.Files(t), ErrorIfPathMissing: true}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"team-a", "team-b", "modelberth-system"} {
		createOnce(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	createOnce(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "app", Namespace: "team-b"}})
	work := readersFiles(t)
	ran := 0
	for _, b := range blocksOf(t, "sh") {
		for _, call := range callsOfKubectl(t, b) {
			if slices.ContainsFunc(call.Args, func(arg string) bool { return strings.Contains(arg, "https://") }) {
				continue // a manifest of another project
			}
			ran++
			if out, err := runKubectl(t, work, call); err != nil && !isAboutObjects(out) {
				t.Errorf("%s: kubectl %s: %v: %s", b.Page, strings.Join(call.Args, " "), err, out)
			}
		}
	}
	if ran < 25 {
		t.Errorf("%d calls of kubectl were found: does the test still know what they look like?", ran)
	}
}

func createOnce(t *testing.T, object client.Object) {
	t.Helper()
	if err := api.Create(t.Context(), object); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

// readersFiles returns a directory with the files that the commands name.
func readersFiles(t *testing.T) string {
	t.Helper()
	out := t.TempDir()
	set, err := os.ReadFile(filepath.Join(repository, "examples/inferencesets/autoscaling.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{"set.yaml": set, "ca.crt": nil, "l40s.yaml": nil, "trusted_root.json": nil, "kubeconfig": api.kubeconfig}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(out, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func runKubectl(t *testing.T, work string, call pages.Call) (string, error) {
	t.Helper()
	var args []string
	for _, arg := range call.Args {
		args = append(args, placeholder.ReplaceAllStringFunc(arg, strings.ToLower))
	}
	writes := []string{"annotate", "apply", "create", "delete", "label", "patch", "scale"}
	if slices.ContainsFunc(writes, func(verb string) bool { return slices.Contains(args, verb) }) && !slices.Contains(args, "token") {
		args = append(args, "--dry-run=server")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl"), args...)
	command.Dir, command.Stdin = work, strings.NewReader(call.In)
	command.Env = append(command.Environ(), "KUBECONFIG="+filepath.Join(work, "kubeconfig"), "HOME="+work)
	out, err := command.CombinedOutput()
	return string(out), err
}

// isAboutObjects reports whether a command failed only because this API server lacks the object or a kind of another
// project, or has the object already.
func isAboutObjects(out string) bool {
	isForeign := slices.ContainsFunc([]string{"nodeclaim", "nodeclaims", "nodepool", "nodepools", "scaledobjects"}, func(kind string) bool {
		return strings.Contains(out, `the server doesn't have a resource type "`+kind+`"`)
	})
	return isForeign || strings.Contains(out, "(NotFound)") || strings.Contains(out, "(AlreadyExists)")
}
