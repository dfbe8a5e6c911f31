// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// clientImage holds curl; it is the engine's own.
const clientImage = "registry.local:5000/modelberth/llamacpp:dev"

// curl asks from a pod of its own, as another application in the cluster would, and returns the body.
func curl(t *testing.T, namespace string, args ...string) string {
	t.Helper()
	pod := startCurl(t, namespace, append([]string{"--fail-with-body", "--max-time", "30"}, args...)...)
	out, ok := awaitCurl(t, pod, time.Minute)
	if !ok {
		t.Fatalf("curl %v failed: %s", args, out)
	}
	return out
}

// startCurl starts a pod that asks.
func startCurl(t *testing.T, namespace string, args ...string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "curl-", Namespace: namespace},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name: "curl", Image: clientImage, Command: append([]string{"curl", "--silent", "--show-error"}, args...),
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
		},
	}
	if err := local.client.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

// awaitCurl waits for a pod with a request, and returns its output and its success.
func awaitCurl(t *testing.T, pod *corev1.Pod, timeout time.Duration) (out string, ok bool) {
	t.Helper()
	waitFor(t, "curl to end", timeout, func(ctx context.Context) (bool, error) {
		err := local.client.Get(ctx, keyOf(pod), pod)
		return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed, err
	})
	return kubectl(t, "logs", pod.Name, "--namespace="+pod.Namespace), pod.Status.Phase == corev1.PodSucceeded
}

// expectAnswers asks the Workspace's Service for its models and for a few words.
func expectAnswers(t *testing.T, ws *v1beta1.Workspace, model string) {
	t.Helper()
	expectAnswersOf(t, keyOf(ws), model)
}

// expectAnswersOf asks a Service for its models and for a few words.
func expectAnswersOf(t *testing.T, service types.NamespacedName, model string) {
	t.Helper()
	base := baseURL(service)
	if ids := listedModels(t, service); !slices.Contains(ids, model) {
		t.Errorf("%s/models lists %v, want %s among them", base, ids, model)
	}
	request, err := json.Marshal(map[string]any{
		"model":      model,
		"messages":   []map[string]string{{"role": "user", "content": "Hello"}},
		"max_tokens": 8,
	})
	if err != nil {
		t.Fatal(err)
	}
	var answer struct {
		Choices []struct {
			Message struct{ Role, Content string }
		}
		Usage struct {
			CompletionTokens int `json:"completion_tokens"`
		}
	}
	decodeJSON(t, curl(t, service.Namespace, base+"/chat/completions", "--header", "Content-Type: application/json", "--data", string(request)), &answer)
	if len(answer.Choices) != 1 || answer.Choices[0].Message.Role != "assistant" || answer.Usage.CompletionTokens < 1 {
		t.Errorf("%s/chat/completions answered %+v, want one message of the assistant with at least one token", base, answer)
	}
}

// baseURL is the address of a Service for clients of OpenAI's API.
func baseURL(service types.NamespacedName) string {
	return fmt.Sprintf("http://%s.%s.svc/v1", service.Name, service.Namespace)
}

// listedModels returns the model names of a Service.
func listedModels(t *testing.T, service types.NamespacedName) []string {
	t.Helper()
	var models struct {
		Data []struct{ ID string }
	}
	decodeJSON(t, curl(t, service.Namespace, baseURL(service)+"/models"), &models)
	var ids []string
	for _, m := range models.Data {
		ids = append(ids, m.ID)
	}
	return ids
}

func decodeJSON(t *testing.T, text string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatalf("not the JSON that was expected: %v: %s", err, text)
	}
}
