// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/pkg/diagnosis"
)

// agentReasons returns the reasons declared in the agent's source. This package must not import the agent, because the
// agent acts.
func agentReasons(t *testing.T) map[string]bool {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../agent/termination.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	reasons := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if kind, ok := spec.Type.(*ast.Ident); !ok || kind.Name != "Reason" {
			return true
		}
		for _, value := range spec.Values {
			if literal, ok := value.(*ast.BasicLit); ok {
				reason, err := strconv.Unquote(literal.Value)
				if err != nil {
					t.Fatal(err)
				}
				reasons[reason] = true
			}
		}
		return true
	})
	return reasons
}

// A finding reports every reason for the agent's failure.
func TestAgentReasons(t *testing.T) {
	lostMember := diagnosis.Finding{
		Reason: "MemberLost",
		Message: `pod "chat-0" ended because its group is incomplete (m): all pods of the group restart together; if that repeats, ` +
			"kubectl logs --previous of the named pod shows why",
	}
	want := map[string]diagnosis.Finding{
		"HubUnreachable":   {Reason: "HubUnreachable", Message: "m (retrying)"},
		"Unauthorized":     {Reason: "Unauthorized", Message: "m (retrying)"},
		"NotFound":         {Reason: "WeightsNotFound", Message: "m (retrying)"},
		"ChecksumMismatch": {Reason: "ChecksumMismatch", Message: "m (retrying)"},
		"DiskFull":         {Reason: "DiskFull", Message: "m (retrying)"},
		"StorageFailed":    {Reason: "WeightsFetchFailed", Message: "m (retrying)"},
		"MemberAbsent":     {Reason: "MemberLost", Message: "m (retrying)"},
		"MemberLost":       lostMember,
		"MemberReplaced":   lostMember,
	}
	got := map[string]diagnosis.Finding{}
	for reason := range agentReasons(t) {
		in := one(fetching(terminated(1, "Error", `{"reason":"`+reason+`","message":"m"}`)))
		in.Signatures = signatures(t)
		got[reason] = diagnosis.Inference(in)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("findings by the agent's reasons (-want +got):\n%s", diff)
	}
}
