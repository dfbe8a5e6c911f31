// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/options"
	"github.com/modelberth/modelberth/test/integration/faults"
	"github.com/modelberth/modelberth/test/script"
	"github.com/modelberth/modelberth/test/vllmsim/server"
)

const (
	// job is the controller's in the chart's rules and dashboards.
	job = "modelberth-metrics"
	// helmTime bounds one run of helm.
	helmTime = time.Minute
)

// question is a query of the chart, with its place.
type question struct{ place, query string }

// TestMonitoring has a real Prometheus scrape the real controller and stand-ins of the engines and GPUs, and runs every
// query of the chart's rules and dashboards. Each must have a result.
func TestMonitoring(t *testing.T) {
	prometheus := installed(t, "prometheus")
	rendered := renderMonitoring(t)
	w := enterAlone(t)
	o := w.options()
	o.Metrics = options.Metrics{Address: freeAddress(t), Insecure: true}
	o.LeaderElect, o.LeaderElectionNamespace = true, "default"
	o.Cost = options.Cost{Namespace: "default", Name: "modelberth-cost", Interval: time.Minute}
	o.Settings = w.createSettings(t, w.namespace(t), map[string]string{"spending-unlimited": "true"})
	w.beginWith(t, faults.NewRecorder(), clock.RealClock{}, o)
	// It starts before the story, so Prometheus sees counters increase.
	at := startPrometheus(t, prometheus, rendered.rules, map[string]string{
		job: o.Metrics.Address, "vllm": serveVLLM(t), "llamacpp": serveFile(t, "llamacpp.prom"), "dcgm": serveFile(t, "dcgm.prom"),
	})
	happen(t, w)

	if len(rendered.questions) < 60 {
		t.Fatalf("only %d queries were found in the chart: does this test still know where they are?", len(rendered.questions))
	}
	for _, q := range rendered.questions {
		query := evaluable(q.query)
		if strings.Contains(query, "vector(") {
			t.Errorf("%s: vector() hides a metric that does not exist: %s", q.place, q.query)
		}
		eventually(t, q.place+" has a result: "+query, func() (bool, string) {
			number, err := results(t, at, query)
			return err == nil && number > 0, fmt.Sprintf("%d results, %v", number, err)
		})
	}
	if number, err := results(t, at, evaluable(`sum(rate(modelberth_invented_total{job="`+job+`"}[5m])) > 0.1`)); number > 0 || err != nil {
		t.Errorf("a metric that does not exist has %d results (%v): the test could not fail", number, err)
	}
	checkReference(t, at)
}

// happen lets one Workspace serve, one be refused and one stall, and keeps a set at zero.
func happen(t *testing.T, w *world) {
	t.Helper()
	serves := kaitoForm(w.namespace(t), "chat")
	w.budget(t, serves.Namespace, "500", "")
	w.create(t, serves)
	w.untilServing(t, serves)
	refused := outcome(t, w, refusedType, script.Rule{Outcome: script.Quota, Kind: "family"})
	w.untilCondition(t, refused, v1beta1.ConditionResourceReady, metav1.ConditionFalse, v1beta1.ReasonQuota)
	stalled := named(w.namespace(t), "none", "Standard_Nonexistent")
	w.create(t, stalled)
	w.untilCondition(t, stalled, v1beta1.ConditionStalled, metav1.ConditionTrue, "")
	scaled := scalingForm(w.namespace(t))
	w.createSet(t, scaled)
	w.untilSet(t, scaled, v1beta1.ConditionAutoscaling, metav1.ConditionTrue, v1beta1.ReasonAtZero)
}

// evaluable turns an alert into a query that has a result while the alert is silent.
func evaluable(query string) string {
	query = regexp.MustCompile(` (>|<|==) `).ReplaceAllString(query, " $1 bool ")
	query = strings.ReplaceAll(query, "absent(", "count(")
	query = strings.ReplaceAll(query, "$__rate_interval", "5m")
	return regexp.MustCompile(`"\$(namespace|workspace)"`).ReplaceAllString(query, `".*"`)
}

// installed returns the path of a program of the Debian package prometheus.
func installed(t *testing.T, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Fatalf("%s is not installed: run `make deps` as root, which installs Debian's package prometheus", program)
	}
	return path
}

// monitoring has the chart's files for Prometheus and Grafana.
type monitoring struct {
	// rules are a file of rules, as Prometheus reads it.
	rules     string
	alerts    []string
	questions []question
}

func renderMonitoring(t *testing.T) monitoring {
	t.Helper()
	helm := os.Getenv("HELM")
	if helm == "" {
		t.Fatal(`HELM names no helm binary: run this through make test-integration, or after: eval "$(make env)"`)
	}
	ctx, cancel := context.WithTimeout(t.Context(), helmTime)
	defer cancel()
	chart := filepath.Join("..", "..", "..", "charts", "modelberth")
	text, err := exec.CommandContext(ctx, helm, "template", "modelberth", chart, "--namespace=modelberth-system", "--kube-version=1.35.4",
		"--values="+filepath.Join("..", "..", "chart", "testdata", "minimal.values.yaml"), "--show-only=templates/monitoring.yaml",
		"--set=monitoring.prometheusRule.enabled=true,monitoring.dashboards.enabled=true").Output()
	if err != nil {
		t.Fatalf("rendering the chart: %v", err)
	}
	out := monitoring{}
	for part := range strings.SplitSeq(string(text), "\n---\n") {
		out.read(t, part)
	}
	return out
}

// read adds one rendered object.
func (m *monitoring) read(t *testing.T, text string) {
	t.Helper()
	var object struct {
		Kind     string
		Metadata metav1.ObjectMeta
		Data     map[string]string
		Spec     struct {
			Groups []struct {
				Name  string           `json:"name"`
				Rules []map[string]any `json:"rules"`
			} `json:"groups"`
		}
	}
	if err := yaml.Unmarshal([]byte(text), &object); err != nil {
		t.Fatal(err)
	}
	for name, content := range object.Data {
		var dashboard struct {
			Panels []struct {
				Title   string
				Targets []struct{ Expr string }
			}
		}
		if err := json.Unmarshal([]byte(content), &dashboard); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, panel := range dashboard.Panels {
			for _, target := range panel.Targets {
				m.questions = append(m.questions, question{name + ", " + panel.Title, target.Expr})
			}
		}
	}
	if object.Kind != "PrometheusRule" {
		return
	}
	rules, err := yaml.Marshal(object.Spec)
	if err != nil {
		t.Fatal(err)
	}
	m.rules = string(rules)
	for _, group := range object.Spec.Groups {
		for _, rule := range group.Rules {
			name, isAlert := rule["alert"].(string)
			if isAlert {
				m.alerts = append(m.alerts, name)
			}
			m.questions = append(m.questions, question{group.Name + ", " + name, fmt.Sprint(rule["expr"])})
		}
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	free, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = free.Close() }()
	return free.Addr().String()
}

// serveVLLM starts the server of the stand-in for vLLM.
func serveVLLM(t *testing.T) string {
	t.Helper()
	site := httptest.NewServer(server.New(server.Options{
		Version: "1.2.3", Names: []string{"tiny"}, Root: "/models", MaxLen: 32, Sequences: 1, CacheTokens: 1000, CacheInfo: `block_size="16"`,
		Vocabulary: map[string]int{"<s>": 1}, VocabularySize: 10, Step: func(context.Context) error { return nil }, Dead: func() {},
	}))
	t.Cleanup(site.Close)
	return site.Listener.Addr().String()
}

// serveFile starts a stand-in that serves a file of testdata/monitoring as its metrics.
func serveFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "monitoring", name))
	if err != nil {
		t.Fatal(err)
	}
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		_, _ = w.Write(text)
	}))
	t.Cleanup(site.Close)
	return site.Listener.Addr().String()
}

// startPrometheus runs Prometheus with rules and one target for each job, and returns its address.
func startPrometheus(t *testing.T, binary, rules string, targets map[string]string) string {
	t.Helper()
	directory, address := t.TempDir(), freeAddress(t)
	config := "global: {scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 500ms}\nrule_files: [rules.yaml]\nscrape_configs:\n"
	for name, target := range targets {
		labels := "{namespace: team-a, workspace: chat}" // as the PodMonitor adds them
		if name == job {
			labels = "{}"
		}
		config += fmt.Sprintf("- {job_name: %s, static_configs: [{targets: [%q], labels: %s}]}\n", name, target, labels)
	}
	for name, text := range map[string]string{"prometheus.yml": config, "rules.yaml": rules} {
		if err := os.WriteFile(filepath.Join(directory, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var log bytes.Buffer
	command := exec.Command(binary, "--config.file="+filepath.Join(directory, "prometheus.yml"), "--web.listen-address="+address,
		"--storage.tsdb.path="+filepath.Join(directory, "data"), "--log.level=warn")
	command.Stdout, command.Stderr = &log, &log
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
		if t.Failed() {
			t.Logf("Prometheus:\n%s", log.String())
		}
	})
	eventually(t, "Prometheus reaches all targets", func() (bool, string) {
		number, err := results(t, address, "up == 1")
		return err == nil && number == len(targets), fmt.Sprintf("%d of %d, %v", number, len(targets), err)
	})
	return address
}

// answer is Prometheus' answer to a query.
type answer struct {
	Status, Error string
	Data          struct {
		Result []struct{ Metric map[string]string }
	}
}

func ask(t *testing.T, address, query string) (*answer, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/api/v1/query?query="+url.QueryEscape(query), http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	out := &answer{}
	if err := json.Unmarshal(text, out); err != nil {
		return nil, err
	}
	if out.Status != "success" {
		return nil, fmt.Errorf("%s", out.Error)
	}
	return out, nil
}

// results returns the number of series that a query has.
func results(t *testing.T, address, query string) (int, error) {
	t.Helper()
	got, err := ask(t, address, query)
	if err != nil {
		return 0, err
	}
	return len(got.Data.Result), nil
}

// checkReference compares the metrics that Prometheus scraped with docs/reference/metrics.md.
func checkReference(t *testing.T, address string) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "reference", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for _, row := range regexp.MustCompile("(?m)^\\| `((?:modelberth|kaito)_[a-z_]+)` \\| (\\w+) \\|").FindAllStringSubmatch(string(page), -1) {
		name := row[1]
		if row[2] == "histogram" {
			name += "_count"
		}
		documented = append(documented, name)
	}
	slices.Sort(documented)
	// The costs of a machine follow its launch by a second.
	eventually(t, "docs/reference/metrics.md has what is scraped", func() (bool, string) {
		got, err := ask(t, address, `count by (__name__) ({job="`+job+`",__name__=~"(modelberth|kaito)_.*",__name__!~".*_(sum|bucket)"})`)
		if err != nil {
			return false, err.Error()
		}
		var scraped []string
		for _, result := range got.Data.Result {
			scraped = append(scraped, result.Metric["__name__"])
		}
		slices.Sort(scraped)
		diff := cmp.Diff(scraped, documented)
		return diff == "", "(-scraped +docs):\n" + diff
	})
}

// TestAlerts runs promtool's tests of the alerts, and checks that each alert has a test and a runbook.
func TestAlerts(t *testing.T) {
	promtool := installed(t, "promtool")
	rendered := renderMonitoring(t)
	directory := t.TempDir()
	tests, err := os.ReadFile(filepath.Join("testdata", "monitoring", "alerts.test.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"rules.yaml": rendered.rules, "alerts.test.yaml": string(tests)} {
		if err := os.WriteFile(filepath.Join(directory, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	for _, args := range [][]string{{"check", "rules", "--lint-fatal", "rules.yaml"}, {"test", "rules", "alerts.test.yaml"}} {
		command := exec.CommandContext(ctx, promtool, args...)
		command.Dir = directory
		if out, err := command.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
	runbooks, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "runbooks.md"))
	if err != nil {
		t.Fatal(err)
	}
	var sections, tested []string
	for _, match := range regexp.MustCompile(`(?m)^## (\w+)$`).FindAllStringSubmatch(string(runbooks), -1) {
		sections = append(sections, match[1])
	}
	for _, match := range regexp.MustCompile(`(?m)alertname: (\w+)\n +exp_alerts:\n`).FindAllStringSubmatch(string(tests), -1) {
		tested = append(tested, match[1])
	}
	slices.Sort(rendered.alerts)
	slices.Sort(sections)
	slices.Sort(tested)
	if diff := cmp.Diff(rendered.alerts, sections); diff != "" {
		t.Errorf("docs/runbooks.md (-alerts +sections):\n%s", diff)
	}
	if diff := cmp.Diff(rendered.alerts, slices.Compact(tested)); diff != "" {
		t.Errorf("alerts.test.yaml fires (-alerts +tested):\n%s", diff)
	}
}

// TestKubeStateMetrics: every path of the configuration exists in the schema of Workspaces.
func TestKubeStateMetrics(t *testing.T) {
	charts := filepath.Join("..", "..", "..", "charts", "modelberth", "files")
	var config struct {
		Spec struct {
			Resources []struct {
				Metrics []struct {
					Name string
					Each struct {
						Info, Gauge struct {
							Path           []string
							LabelsFromPath map[string][]string
							ValueFrom      []string
						}
					}
				}
			}
		}
	}
	var definition map[string]any
	for path, into := range map[string]any{"monitoring/kube-state-metrics.yaml": &config, "crds/kaito.sh_workspaces.yaml": &definition} {
		text, err := os.ReadFile(filepath.Join(charts, path))
		if err == nil {
			err = yaml.Unmarshal(text, into)
		}
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	checked := 0
	for _, metric := range config.Spec.Resources[0].Metrics {
		for _, each := range []struct {
			Path           []string
			LabelsFromPath map[string][]string
			ValueFrom      []string
		}{metric.Each.Info, metric.Each.Gauge} {
			paths := [][]string{each.Path, slices.Concat(each.Path, each.ValueFrom)}
			for _, path := range each.LabelsFromPath {
				paths = append(paths, slices.Concat(each.Path, path))
			}
			for _, path := range paths {
				checked++
				if !hasPath(definition, path) {
					t.Errorf("metric %s: a Workspace has no field %s", metric.Name, strings.Join(path, "."))
				}
			}
		}
	}
	if checked < 10 || hasPath(definition, []string{"status", "invented"}) {
		t.Errorf("%d paths were checked: does this test still find them?", checked)
	}
}

// hasPath reports whether version v1beta1 of a definition has a field.
func hasPath(definition map[string]any, path []string) bool {
	spec, _ := definition["spec"].(map[string]any)
	versions, _ := spec["versions"].([]any)
	for _, each := range versions {
		version, _ := each.(map[string]any)
		if version["name"] != "v1beta1" {
			continue
		}
		schema, _ := version["schema"].(map[string]any)
		at, _ := schema["openAPIV3Schema"].(map[string]any)
		for _, field := range path {
			if items, isList := at["items"].(map[string]any); isList {
				at = items
			}
			properties, _ := at["properties"].(map[string]any)
			if at, _ = properties[field].(map[string]any); at == nil {
				return false
			}
		}
		return true
	}
	return false
}
