// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// Lines as an API server writes them, shortened.
const (
	createdLine = `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","stage":"ResponseComplete","verb":"create",` +
		`"user":{"username":"admin"},"objectRef":{"resource":"workspaces","namespace":"bench","name":"ws-0001","apiGroup":"kaito.sh"},` +
		`"responseStatus":{"metadata":{},"code":201},` +
		`"requestReceivedTimestamp":"2026-11-21T12:00:00.000000Z","stageTimestamp":"2026-11-21T12:00:00.500000Z"}`
	readyLine = `{"kind":"Event","level":"Request","stage":"ResponseComplete","verb":"patch",` +
		`"user":{"username":"admin"},"objectRef":{"resource":"workspaces","subresource":"status","namespace":"bench","name":"ws-0001","apiGroup":"kaito.sh"},` +
		`"responseStatus":{"metadata":{},"code":200},"requestObject":{"metadata":{"labels":{"a":"b"}},` +
		`"status":{"state":"Ready","conditions":[{"type":"Ready","status":"True"}]}},` +
		`"requestReceivedTimestamp":"2026-11-21T12:00:01.000000Z","stageTimestamp":"2026-11-21T12:00:01.500000Z"}`
	refusedLine = `{"kind":"Event","level":"Request","stage":"ResponseComplete","verb":"patch",` +
		`"user":{"username":"admin"},"objectRef":{"resource":"workspaces","subresource":"status","namespace":"bench","name":"ws-0001","apiGroup":"kaito.sh"},` +
		`"responseStatus":{"metadata":{},"status":"Failure","reason":"Conflict","code":409},` +
		`"requestObject":{"metadata":{"resourceVersion":"7"},"status":{"conditions":[{"type":"Ready","status":"True"}]}},` +
		`"requestReceivedTimestamp":"2026-11-21T12:00:02.000000Z","stageTimestamp":"2026-11-21T12:00:02.500000Z"}`
	watchBeginsLine = `{"kind":"Event","stage":"ResponseStarted","verb":"watch","user":{"username":"admin"},"objectRef":{"resource":"nodes"},` +
		`"responseStatus":{"code":200},"requestReceivedTimestamp":"2026-11-21T12:00:03.000000Z","stageTimestamp":"2026-11-21T12:00:03.500000Z"}`
	watchEndsLine = `{"kind":"Event","stage":"ResponseComplete","verb":"watch","user":{"username":"admin"},"objectRef":{"resource":"nodes"},` +
		`"responseStatus":{"code":200},"requestReceivedTimestamp":"2026-11-21T12:00:03.000000Z","stageTimestamp":"2026-11-21T12:08:03.500000Z"}`
)

// TestLog reads a log that grows in pieces smaller or larger than lines.
func TestLog(t *testing.T) {
	created := request(administrator, "create", "workspaces", "", "bench", "ws-0001", 0)
	created.Object.APIGroup, created.Response.Code = "kaito.sh", http.StatusCreated
	ready := request(administrator, "patch", "workspaces", "status", "bench", "ws-0001", 1)
	ready.Object.APIGroup = "kaito.sh"
	ready.Sent.Metadata.Labels = map[string]string{"a": "b"}
	ready.Sent.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionReady, Status: metav1.ConditionTrue}}
	conflict := request(administrator, "patch", "workspaces", "status", "bench", "ws-0001", 2)
	conflict.Object.APIGroup, conflict.Response.Code = "kaito.sh", http.StatusConflict
	watch := request(administrator, "watch", "nodes", "", "", "", 3)
	watch.Stage = "ResponseStarted"

	path := filepath.Join(t.TempDir(), "audit.log")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := OpenLog(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	for _, step := range []struct {
		reason, written string
		want            []Request
	}{
		{"an empty log", "", nil},
		{"a line and a half", createdLine + "\n" + readyLine[:300], []Request{created}},
		{"nothing new", "", nil},
		{"the other half, without its end", readyLine[300:], nil},
		{"its end, a refusal, and a watch that begins and ends", "\n" + strings.Join([]string{refusedLine, watchBeginsLine, watchEndsLine}, "\n") + "\n", []Request{ready, conflict, watch}},
	} {
		appendTo(t, path, step.written)
		got, err := log.Read()
		if err != nil {
			t.Fatalf("%s: %v", step.reason, err)
		}
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.reason, diff)
		}
	}
	appendTo(t, path, "no JSON\n")
	if _, err := log.Read(); err == nil || !strings.Contains(err.Error(), "line 6 ") {
		t.Errorf("a broken line is no error that says which: %v", err)
	}
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
}
