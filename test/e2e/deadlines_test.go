// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// TestDeadlines waits for missing machines, with shorter deadlines than other tests.
func TestDeadlines(t *testing.T) {
	configure(t, "capacity.initializationDeadline=20s", "capacity.nodeGrace=5s")
	tellAll(t, []story{
		{"GPUs never appear", noGPUs},
		{"a machine is killed", killed},
	})
}

// noGPUs has the GPUs of two machine types never appear: the first is replaced, and after the second it is
// plain that something has to be mended. Once it is, the model serves.
func noGPUs(t *testing.T) {
	ns := namespace(t)
	refuse(t, `{"rules": [{"sku": "Standard_NV36*", "outcome": "noGPUs"}]}`)
	apply(t, ns, wish("chat", v1beta1.CapacityOnDemand, noGPUsType, noGPUsNext))
	ws := waitAttempts(t, ns, "chat", noGPUsType+" NeverInitialized", noGPUsNext+" Misconfigured")
	for _, kind := range []string{v1beta1.ConditionResourceReady, v1beta1.ConditionReady} {
		condition := waitCondition(t, keyOf(ws), kind, v1beta1.ReasonMisconfigured, seenTimeout)
		if !strings.Contains(condition.Message, "device plugin") {
			t.Errorf("%s says %q, want what is to be mended", kind, condition.Message)
		}
	}
	refuse(t, `{"rules": []}`)
	kubectl(t, "annotate", "workspace", "chat", "--namespace="+ns, v1beta1.AnnotationRetryCapacity+"=mended")
	ws = waitReady(t, ns, "chat")
	local.ledger.expect(t, ws, 3)
	expectHeld(t, ws, 1)
	expectAnswers(t, ws, tinyModel)
}

// killed makes a serving machine vanish, as when a host fails: nobody deletes its node, and its pod cannot report its
// end.
func killed(t *testing.T) {
	ns := namespace(t)
	apply(t, ns, wish("chat", v1beta1.CapacityOnDemand, killedType))
	ws := waitReady(t, ns, "chat")
	killMachine(t, ws.Status.WorkerNodes[0])
	start := time.Now()
	waitCondition(t, types.NamespacedName{Namespace: ns, Name: "chat"}, v1beta1.ConditionReady, v1beta1.ReasonNodeNotReady, readyTimeout)
	elapsed(t, "from a machine's end to its node not Ready", start)
	waitAttempts(t, ns, "chat", killedType+" Lost", killedType)
	elapsed(t, "from a machine's end to another machine", start)
	ws = waitReady(t, ns, "chat")
	expectAnswers(t, ws, tinyModel)
	elapsed(t, "from a machine's end to an answer", start)
	expectHeld(t, ws, 1)
	local.ledger.expect(t, ws, 2)
}

// killMachine ends the first process of a node's machine.
func killMachine(t *testing.T, node string) {
	t.Helper()
	process, err := os.FindProcess(machinePID(t, node))
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Signal(syscall.SIGKILL); err != nil {
		t.Fatalf("killing machine %s: %v", node, err)
	}
}

// machinePID returns the first process of a node's machine.
func machinePID(t *testing.T, node string) int {
	t.Helper()
	status, err := askCloud(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, machine := range status.Machines {
		if machine.Name == node && machine.PID > 1 {
			return machine.PID
		}
	}
	t.Fatalf("no machine of node %s runs: %+v", node, status.Machines)
	return 0
}

// cloudStatus has the processes of the local cloud.
type cloudStatus struct {
	Components []struct {
		Name string
		PID  int
	}
	Machines []cloudMachine
}

// cloudMachine is a machine of the local cloud, with the addresses of its node and its pods.
type cloudMachine struct {
	Name    string
	PID     int
	Created time.Time
	Network struct{ Address, PodCIDR string }
}

func askCloud(ctx context.Context) (cloudStatus, error) {
	var status cloudStatus
	out, err := execute(ctx, local.localcloud, "status", "--state-dir="+local.state, "--output=json")
	if err != nil {
		return status, err
	}
	err = json.Unmarshal([]byte(out), &status)
	return status, err
}

// configure changes settings of the release until the test ends.
func configure(t *testing.T, settings ...string) {
	t.Helper()
	t.Cleanup(func() { helm(t, "rollback", release, "--wait", "--timeout=2m") })
	helm(t, "upgrade", release, chartDir, "--reuse-values", "--set="+strings.Join(settings, ","), "--wait", "--timeout=2m")
}
