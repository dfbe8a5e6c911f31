// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package privileges_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/modelberth/modelberth/test/privileges"
)

const user = "system:serviceaccount:system:controller"

// logged writes an audit log with one line for each request.
func logged(t *testing.T, lines ...string) []privileges.Request {
	t.Helper()
	path := filepath.Join(t.TempDir(), "audit.log")
	var text []byte
	for _, line := range lines {
		text = append(text, line+"\n"...)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	requests, err := privileges.Read(path, user)
	if err != nil {
		t.Fatal(err)
	}
	return requests
}

// line is one of the log: about pods in team-a, unless it is changed.
func line(verb, stage, code string) string {
	return `{"verb":"` + verb + `","stage":"` + stage + `","user":{"username":"` + user + `"},` +
		`"objectRef":{"resource":"pods","namespace":"team-a","name":"a"},"responseStatus":{"code":` + code + `,"message":"why"}}`
}

func TestCompare(t *testing.T) {
	const complete = "ResponseComplete"
	tests := []struct {
		reason    string
		verbs     []string
		namespace string
		lines     []string
		rare      privileges.Rare
		want      []string
	}{
		{reason: "what is granted is used", verbs: []string{"get"}, lines: []string{line("get", complete, "404")}},
		{reason: "in its namespace", verbs: []string{"get"}, namespace: "team-a", lines: []string{line("get", complete, "200")}},
		{
			reason: "but not there", verbs: []string{"get"}, namespace: "team-b", lines: []string{line("get", complete, "200")},
			want: []string{"granted and not used:  pods get in team-b"},
		},
		{reason: "nobody uses it", verbs: []string{"delete"}, want: []string{"granted and not used:  pods delete"}},
		{reason: "nobody need use it", verbs: []string{"delete"}, rare: privileges.Rare{" pods delete": "at times"}},
		{
			reason: "an excuse for nothing", rare: privileges.Rare{" pods delete": "at times"},
			want: []string{"excused and not granted any more, take it off the list:  pods delete"},
		},
		{
			reason: "what was forbidden is not used", verbs: []string{"get"}, lines: []string{line("get", complete, "403")},
			want: []string{"forbidden:  pods get team-a/a: why", "granted and not used:  pods get"},
		},
		{
			reason: "a forbidden watch never starts", lines: []string{line("watch", complete, "403")},
			want: []string{"forbidden:  pods watch team-a/a: why"},
		},
		{reason: "an apply creates", verbs: []string{"create", "patch"}, lines: []string{line("patch", complete, "201")}},
		{
			reason: "an apply over an object does not", verbs: []string{"create", "patch"}, lines: []string{line("patch", complete, "200")},
			want: []string{"granted and not used:  pods create"},
		},
		{reason: "a watch may list", verbs: []string{"list", "watch"}, lines: []string{line("watch", "ResponseStarted", "200")}},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			granted := privileges.Granted{}
			granted.Add(test.namespace, []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: test.verbs}})
			if diff := cmp.Diff(test.want, privileges.Compare(granted, logged(t, test.lines...), test.rare)); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}
