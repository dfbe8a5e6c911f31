// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/test/localcloud/layout"
	"github.com/modelberth/modelberth/test/localcloud/process"
	"github.com/modelberth/modelberth/test/localcloud/sku"
	"github.com/modelberth/modelberth/test/script"
)

// fakeRunner runs idle machines until they are ended or crash.
type fakeRunner struct {
	mu     sync.Mutex
	labels map[string]map[string]string
	starts map[string]int
	crash  map[string]chan error
}

func newFakeRunner() *fakeRunner {
	return &fakeRunner{labels: map[string]map[string]string{}, starts: map[string]int{}, crash: map[string]chan error{}}
}

func (f *fakeRunner) Run(ctx context.Context, m Machine, labels map[string]string, started func(pid int)) error {
	crash := make(chan error, 1)
	f.mu.Lock()
	f.labels[m.Name] = labels
	f.starts[m.Name]++
	f.crash[m.Name] = crash
	f.mu.Unlock()
	started(1000)
	select {
	case <-ctx.Done():
		return nil
	case err := <-crash:
		return err
	}
}

func (f *fakeRunner) started(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.starts[name]
}

func (f *fakeRunner) kill(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.crash[name] <- errors.New("power cut")
}

func testCatalogue() sku.Catalogue {
	return sku.Catalogue{
		"A": {
			Name: "A", Region: "r", Zones: []string{"r-1", "r-2"}, GPUs: 2, Resource: "nvidia.com/gpu", Product: "Tesla-T4", MemoryMiB: 15360,
			Prices: map[string]float64{sku.OnDemand: 1, sku.Spot: 0.4},
		},
		"AMD": {Name: "AMD", Region: "r", Zones: []string{"r-1"}, GPUs: 8, Resource: "amd.com/gpu", Prices: map[string]float64{sku.OnDemand: 1}},
	}
}

// newTestService returns a service and its script, for the test to change.
func newTestService(t *testing.T) (*Service, *fakeRunner, *script.Script) {
	t.Helper()
	runner, rules := newFakeRunner(), &script.Script{}
	s := NewService(Options{
		Catalogue: testCatalogue(),
		Runner:    runner,
		Script:    func() (script.Script, string, error) { return *rules, fmt.Sprint(*rules), nil },
		Records:   t.TempDir(),
		Bill:      filepath.Join(t.TempDir(), "bill.jsonl"),
		Log:       slog.New(slog.DiscardHandler),
	})
	t.Cleanup(s.Close)
	return s, runner, rules
}

func request(name string) Request {
	return Request{Name: name, SKU: "A", Zone: "r-1", CapacityType: sku.OnDemand}
}

func eventually(t *testing.T, what string, ready func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err := process.Await(ctx, what, time.Millisecond, func(context.Context) error {
		if ready() {
			return nil
		}
		return errors.New("not yet")
	})
	if err != nil {
		t.Fatal(err)
	}
}

func names(machines []Machine) []string {
	var out []string
	for _, m := range machines {
		out = append(out, m.Name)
	}
	return out
}

func TestCreate(t *testing.T) {
	s, _, _ := newTestService(t)
	got, err := s.Create(request("gpu"))
	if err != nil {
		t.Fatal(err)
	}
	want := Machine{
		Request: request("gpu"), ID: "m-000001", ProviderID: "local://m-000001", GPUs: 2, GPUResource: "nvidia.com/gpu",
		Network: layout.NodeNetwork{Slot: 0, Address: "10.231.0.10", PodCIDR: "10.244.0.0/24"}, State: Starting,
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(Machine{}, "Created", "PID", "State")); diff != "" {
		t.Errorf("machine (-want +got):\n%s", diff)
	}
	eventually(t, "the machine to run", func() bool {
		m, err := s.Get(got.ID)
		return err == nil && m.State == Running && m.PID == 1000
	})
}

func TestCreateRefuses(t *testing.T) {
	for _, test := range []struct {
		reason string
		change func(*Request)
		rules  []script.Rule
		want   Error
	}{
		{reason: "no such type", change: func(r *Request) { r.SKU = "B" }, want: Error{Code: CodeInvalid, Message: `machine type "B" is not in the catalogue`}},
		{
			reason: "no such zone", change: func(r *Request) { r.Zone = "q-1" },
			want: Error{Code: CodeInvalid, Message: `machine type A is not sold as "on-demand" in zone "q-1": it is sold as on-demand, spot in r-1, r-2`},
		},
		{
			reason: "a name that no host can have", change: func(r *Request) { r.Name = "Gpu" },
			want: Error{Code: CodeInvalid, Message: `machine name "Gpu" is not a host name of at most 63 characters`},
		},
		{
			reason: "a name too long for a host", change: func(r *Request) { r.Name = strings.Repeat("x", 64) },
			want: Error{Code: CodeInvalid, Message: `machine name "` + strings.Repeat("x", 64) + `" is not a host name of at most 63 characters`},
		},
		{
			reason: "scripted: none left", rules: []script.Rule{{Outcome: script.NoCapacity}},
			want: Error{
				Code: CodeNoCapacity, Message: "no capacity for A (on-demand) in r-1",
				Refusal: &script.Refusal{Ending: script.Delete, Message: "no capacity for A (on-demand) in r-1"},
			},
		},
		{
			reason: "scripted: not for you, after a while", rules: []script.Rule{{Outcome: script.Quota, Message: "ask sales", Delay: metav1.Duration{Duration: time.Second}}},
			want: Error{
				Code: CodeQuota, Message: "ask sales", Delay: time.Second,
				Refusal: &script.Refusal{Ending: script.Keep, Reason: "SubscriptionQuotaReached", Message: "ask sales"},
			},
		},
		{
			reason: "scripted: throttled, in a cloud's words", rules: []script.Rule{{Outcome: script.APIError, Cloud: script.AWS}},
			want: Error{
				Code: CodeUnavailable, Message: "Request limit exceeded", Cloud: script.AWS,
				Refusal: &script.Refusal{Ending: script.Keep, Reason: "RequestLimitExceeded", Message: "Request limit exceeded"},
			},
		},
		{
			reason: "scripted: no answer", rules: []script.Rule{{Outcome: script.Hang}},
			want: Error{Code: CodeSilent, Message: "no answer to the request for machine gpu"},
		},
	} {
		t.Run(test.reason, func(t *testing.T) {
			s, _, rules := newTestService(t)
			rules.Rules = test.rules
			r := request("gpu")
			if test.change != nil {
				test.change(&r)
			}
			_, err := s.Create(r)
			var got *Error
			if !errors.As(err, &got) {
				t.Fatalf("error %v, want a refusal", err)
			}
			if diff := cmp.Diff(test.want, *got); diff != "" {
				t.Errorf("refusal (-want +got):\n%s", diff)
			}
			if sold := s.List(); len(sold) > 0 {
				t.Errorf("it was sold all the same: %v", sold)
			}
		})
	}
}

func TestAskingTwiceGivesOneMachine(t *testing.T) {
	s, _, _ := newTestService(t)
	first, err := s.Create(request("gpu"))
	if err != nil {
		t.Fatal(err)
	}
	second, err := s.Create(request("gpu"))
	if err != nil {
		t.Fatal(err)
	}
	if first.ID != second.ID {
		t.Errorf("the name has the machines %s and %s", first.ID, second.ID)
	}
	other := request("gpu")
	other.Zone = "r-2"
	var refused *Error
	if _, err := s.Create(other); !errors.As(err, &refused) || refused.Code != CodeConflict {
		t.Errorf("the name with another zone gives %v, want a conflict", err)
	}
}

func TestDelete(t *testing.T) {
	s, _, _ := newTestService(t)
	m, err := s.Create(request("gpu"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(m.ID); err != nil {
		t.Fatal(err)
	}
	var refused *Error
	eventually(t, "the machine to be gone", func() bool {
		_, err := s.Get(m.ID)
		return errors.As(err, &refused) && refused.Code == CodeNotFound
	})
	if err := s.Delete(m.ID); !errors.As(err, &refused) || refused.Code != CodeNotFound {
		t.Errorf("deleting it again gives %v, want that it is not found", err)
	}
	eventually(t, "its record to be gone", func() bool {
		records, err := os.ReadDir(s.options.Records)
		return err == nil && len(records) == 0
	})
	again, err := s.Create(request("gpu"))
	if err != nil {
		t.Fatal(err)
	}
	if again.ID == m.ID || again.Network.Slot == m.Network.Slot {
		t.Errorf("the next machine is %s with slot %d, want another id and another slot than the last", again.ID, again.Network.Slot)
	}
}

func TestSlowMachineIsSoldAtOnceAndComesLater(t *testing.T) {
	s, runner, rules := newTestService(t)
	rule := script.Rule{Outcome: script.Slow}
	rule.Delay.Duration = time.Hour
	rules.Rules = []script.Rule{rule}
	m, err := s.Create(request("gpu"))
	if err != nil {
		t.Fatal(err)
	}
	if m.State != Starting || runner.started("gpu") != 0 {
		t.Errorf("state %s after %d starts, want %s and none", m.State, runner.started("gpu"), Starting)
	}
	if err := s.Delete(m.ID); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the machine to be gone before it came", func() bool { return len(s.List()) == 0 })
	if runner.started("gpu") != 0 {
		t.Error("it was started although it had been deleted")
	}
}

func TestLostMachineIsGone(t *testing.T) {
	s, runner, _ := newTestService(t)
	m, err := s.Create(request("gpu"))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the machine to start", func() bool { return runner.started("gpu") == 1 })
	runner.kill("gpu")
	eventually(t, "the machine to be gone", func() bool {
		_, err := s.Get(m.ID)
		return err != nil
	})
}

func TestSystemMachine(t *testing.T) {
	s, runner, _ := newTestService(t)
	m, err := s.System("system", map[string]string{"a": "b"})
	if err != nil {
		t.Fatal(err)
	}
	if !m.System || m.GPUs != 0 {
		t.Errorf("machine %+v, want the cloud's own and without GPUs", m)
	}
	eventually(t, "the machine to start", func() bool { return runner.started("system") == 1 })
	runner.kill("system")
	eventually(t, "the machine to start again", func() bool { return runner.started("system") == 2 })
	var refused *Error
	if _, err := s.Create(request("system")); !errors.As(err, &refused) || refused.Code != CodeConflict {
		t.Errorf("buying a machine of its name gives %v, want a conflict", err)
	}
}

func TestClose(t *testing.T) {
	s, runner, _ := newTestService(t)
	for _, name := range []string{"a", "b"} {
		if _, err := s.Create(request(name)); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"a", "b"}, names(s.List())); diff != "" {
		t.Errorf("machines (-want +got):\n%s", diff)
	}
	s.Close()
	if left := s.List(); len(left) > 0 {
		t.Errorf("these outlived the cloud: %v", left)
	}
	if _, err := s.Create(request("c")); err == nil || runner.started("c") > 0 {
		t.Errorf("a closed cloud sells: error %v", err)
	}
}

func TestNodeLabels(t *testing.T) {
	catalogue := testCatalogue()
	asked := request("gpu")
	asked.Labels = map[string]string{
		"plain": "1", "modelberth.dev/workspace-uid": "u", "karpenter.sh/nodepool": "p", "node.kubernetes.io/mine": "m",
		"node-restriction.kubernetes.io/x": "no", "kubernetes.io/hostname": "no", "app.k8s.io/y": "no",
	}
	common := map[string]string{
		"plain": "1", "modelberth.dev/workspace-uid": "u", "karpenter.sh/nodepool": "p", "node.kubernetes.io/mine": "m",
		"topology.kubernetes.io/zone": "r-1", "topology.kubernetes.io/region": "r", "karpenter.sh/capacity-type": "on-demand",
	}
	with := func(more map[string]string) map[string]string {
		out := maps.Clone(common)
		maps.Copy(out, more)
		return out
	}
	for _, test := range []struct {
		reason, sku string
		want        map[string]string
	}{
		{"an NVIDIA machine has the labels of GPU feature discovery", "A", with(map[string]string{
			"node.kubernetes.io/instance-type": "A", "nvidia.com/gpu.present": "true", "nvidia.com/gpu.product": "Tesla-T4",
			"nvidia.com/gpu.count": "2", "nvidia.com/gpu.memory": "15360",
		})},
		{"another one has none", "AMD", with(map[string]string{"node.kubernetes.io/instance-type": "AMD"})},
	} {
		t.Run(test.reason, func(t *testing.T) {
			if diff := cmp.Diff(test.want, NodeLabels(asked, catalogue[test.sku])); diff != "" {
				t.Errorf("labels (-want +got):\n%s", diff)
			}
		})
	}
}

func TestProviderID(t *testing.T) {
	if id, err := ParseProviderID(ProviderID("m-1")); err != nil || id != "m-1" {
		t.Errorf("there and back gives %q, %v", id, err)
	}
	for _, bad := range []string{"", "local://", "azure:///m-1", "m-1"} {
		if id, err := ParseProviderID(bad); err == nil {
			t.Errorf("provider id %q gives %q, want an error", bad, id)
		}
	}
}

// TestBill: each machine is charged once, from its sale until it is gone. The cloud's own machine is not for sale.
func TestBill(t *testing.T) {
	s, runner, _ := newTestService(t)
	begin := time.Now()
	if _, err := s.System("system", nil); err != nil {
		t.Fatal(err)
	}
	sold, err := s.Create(request("deleted"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(request("lost")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the machines to run", func() bool { return runner.started("lost") == 1 && runner.started("deleted") == 1 })
	for range 2 { // asked twice, gone once
		if err := s.Delete(sold.ID); err != nil && !isCode(err, CodeNotFound) {
			t.Fatal(err)
		}
	}
	runner.kill("lost")
	eventually(t, "the machines to be gone", func() bool { return len(s.List()) == 1 })
	s.Close()
	data, err := os.ReadFile(s.options.Bill)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(string(data)) {
		var sale Sale
		if err := json.Unmarshal([]byte(line), &sale); err != nil {
			t.Fatal(err)
		}
		got = append(got, sale.Name+" "+sale.SKU)
		if sale.Created.Before(begin.UTC()) || sale.Ended.Before(sale.Created) || sale.Ended.After(time.Now()) {
			t.Errorf("machine %s is charged from %s to %s", sale.Name, sale.Created, sale.Ended)
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff([]string{"deleted A", "lost A"}, got); diff != "" {
		t.Errorf("charged (-want +got):\n%s", diff)
	}
}

func isCode(err error, code Code) bool {
	refused, is := errors.AsType[*Error](err)
	return is && refused.Code == code
}

func TestRecordsFollowTheMachines(t *testing.T) {
	s, _, _ := newTestService(t)
	if _, err := s.Create(request("gpu")); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(s.options.Records)
	if err != nil {
		t.Fatal(err)
	}
	found := slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == "m-000001.json" })
	if !found {
		t.Errorf("records are %v, want m-000001.json among them", entries)
	}
}
