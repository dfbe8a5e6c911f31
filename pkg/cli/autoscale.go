// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/autoscale"
	"github.com/modelberth/modelberth/pkg/autoscale/simulation"
)

func newAutoscale(w World) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "autoscale",
		Short: "Try an InferenceSet's autoscaling on a trace of requests",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newSimulate(w), newTune(w))
	return cmd
}

// traceOptions are the flags of the commands that replay a trace.
type traceOptions struct {
	planOptions
	output

	file, trace      string
	startUp, ttft    time.Duration
	percentile, load float64
	initial          int
	seed             uint64
}

func (s *traceOptions) bind(cmd *cobra.Command, w World) {
	f := cmd.Flags()
	f.StringVarP(&s.file, "filename", "f", "", "manifest with one InferenceSet; - is the standard input (required)")
	f.StringVar(&s.trace, "trace", "", "CSV file of requests, or bursty, diurnal or long-tail (required)")
	f.DurationVar(&s.startUp, "start-up", 5*time.Minute, "time from the creation of a replica to its first answer; a Workspace's status.startup shows the measured time")
	f.DurationVar(&s.ttft, "ttft", 0, "goal for the time to the first token (default: the policy's target, or 5s)")
	f.Float64Var(&s.percentile, "percentile", 95, "percentage of the requests that must reach the goal")
	f.Float64Var(&s.load, "load", 5, "load of a generated trace, as the average number of replicas that it keeps fully busy")
	f.IntVar(&s.initial, "initial", 0, "replicas at the start (default: enough for the first requests)")
	f.Uint64Var(&s.seed, "seed", 1, "seed of a generated trace")
	s.planOptions.bind(cmd, w)
	s.output.bind(cmd, false)
	_ = cmd.MarkFlagFilename("filename", "yaml", "yml", "json")
	complete(cmd, "trace", traceNames)
}

// simulateCommand is kubectl berth autoscale simulate.
type simulateCommand struct {
	traceOptions

	svg   string
	quick bool
}

func newSimulate(w World) *cobra.Command {
	s := &simulateCommand{}
	cmd := &cobra.Command{
		Use:   "simulate -f FILE --trace TRACE",
		Short: "Replay requests against the autoscaling of an InferenceSet that is not applied yet",
		Long: `Replay requests against the autoscaling of an InferenceSet that is not applied yet.

The policy in the file sets the number of replicas. Engines are as fast as the planner predicts, and a replica is
ready one start-up time (--start-up) after the policy requests it. For comparison, the same requests are replayed
against a HorizontalPodAutoscaler, KAITO's rule for KEDA, and a clairvoyant schedule: the cheapest that a search over
all requests finds for the same time to first token.

--trace is a CSV file with the columns time, input and output (seconds or dates, tokens, tokens); the column
names of the public traces of Azure and BurstGPT also work. Or name a generated trace: bursty, diurnal or
long-tail. Its rate keeps --load full replicas busy on average, whatever the policy's targets are.

A replica costs its plan's price from its request until its deletion.`,
		Example: `  kubectl berth autoscale simulate -f set.yaml --trace requests.csv
  kubectl berth autoscale simulate -f set.yaml --trace bursty --start-up 4m --svg replicas.svg
  kubectl berth autoscale simulate -f set.yaml --trace diurnal --load 8 --quick -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return s.run(cmd.Context(), w) },
	}
	s.bind(cmd, w)
	cmd.Flags().StringVar(&s.svg, "svg", "", "SVG file for a chart of the replicas")
	cmd.Flags().BoolVar(&s.quick, "quick", false, "simulate only the policy, and skip the comparisons")
	return cmd
}

func traceNames() []string {
	shapes, _ := simulation.Shapes() // a test checks that they load
	var names []string
	for i := range shapes {
		names = append(names, shapes[i].Name)
	}
	return names
}

func (s *traceOptions) check() error {
	switch {
	case s.file == "":
		return usageError("no InferenceSet: name a manifest with -f")
	case s.trace == "":
		return usageError("no trace: name a CSV file with --trace, or %s", orList(traceNames()))
	case s.startUp < 0 || s.startUp > 24*time.Hour:
		return usageError("--start-up is %s: it must be at most 24h", s.startUp)
	case s.ttft < 0:
		return usageError("--ttft is %s: it must be above zero", s.ttft)
	case !(s.percentile > 0 && s.percentile <= 100):
		return usageError("--percentile is %v: it must be above 0 and at most 100", s.percentile)
	case !(s.load > 0 && s.load <= 200):
		return usageError("--load is %v: it must be above 0 and at most 200", s.load)
	case s.initial < 0 || s.initial > 1000:
		return usageError("--initial is %d: it must be from 0 to 1000", s.initial)
	}
	return nil
}

func (s *simulateCommand) run(ctx context.Context, w World) error {
	found, err := s.read(ctx, w.In)
	if err != nil {
		return err
	}
	r := &replay{scenario: found}
	s.replay(r)
	return s.show(w, r)
}

// read reads the set and the trace, and plans a replica.
func (s *traceOptions) read(ctx context.Context, stdin io.Reader) (*scenario, error) {
	out, err := s.readPolicy(ctx, stdin)
	if err != nil {
		return nil, err
	}
	if out.requests, out.shape, err = s.requests(out.deployed, stdin); err != nil {
		return nil, err
	}
	out.source = s.describeTrace(out.shape, out.requests)
	return out, nil
}

// readPolicy reads the set, and plans a replica.
func (s *traceOptions) readPolicy(ctx context.Context, stdin io.Reader) (*scenario, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	set, m, err := readSet(s.file, stdin)
	if err != nil {
		return nil, err
	}
	if !autoscale.IsWanted(set) {
		return nil, usageError("%s, InferenceSet %s: spec.autoscaling is not set: write a policy, at least maxReplicas", s.file, key(set))
	}
	policy, err := autoscale.PolicyOf(set)
	if err != nil {
		return nil, usageError("%s, InferenceSet %s: %w", s.file, key(set), err)
	}
	if err := s.open(); err != nil {
		return nil, err
	}
	got, err := s.plan(ctx, m, m.workspaces[0])
	if err != nil {
		return nil, err
	}
	deployed, err := s.deployed(&got)
	if err != nil {
		return nil, err
	}
	return &scenario{set: key(set), deployed: deployed, policy: &policy, goal: s.goal(&policy), startUp: s.startUp}, nil
}

// readSet reads the only InferenceSet of a manifest, and adds a Workspace made from its template.
func readSet(name string, stdin io.Reader) (*v1beta1.InferenceSet, *manifest, error) {
	data, err := readFile(name, stdin)
	if err != nil {
		return nil, nil, usageError("-f: %w", err)
	}
	m := &manifest{file: name, configs: map[string]map[string]string{}}
	var set *v1beta1.InferenceSet
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for number := 1; ; number++ {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		where := fmt.Sprintf("%s, document %d", name, number)
		if err != nil {
			return nil, nil, usageError("%s: cannot be read: %w", where, err)
		}
		object, err := decode(document)
		if err != nil {
			return nil, nil, usageError("%s: %w", where, err)
		}
		if kind, _ := object["kind"].(string); kind == "ConfigMap" {
			if err := m.add(where, object); err != nil {
				return nil, nil, usageError("%w", err)
			}
		} else if kind == v1beta1.InferenceSetKind {
			if set != nil {
				return nil, nil, usageError("%s: a second InferenceSet: keep one", where)
			}
			set = &v1beta1.InferenceSet{}
			delete(object, "status")
			if err := read(object, set); err != nil {
				return nil, nil, usageError("%s (%s): %w", where, named(v1beta1.InferenceSetKind, object), err)
			}
		}
	}
	if set == nil {
		return nil, nil, usageError("%s: holds no InferenceSet: write one with apiVersion %s and kind %s",
			name, v1beta1.GroupVersion(), v1beta1.InferenceSetKind)
	}
	err = m.addTemplate(set)
	return set, m, err
}

// addTemplate adds a Workspace made from the template of a set.
func (m *manifest) addTemplate(set *v1beta1.InferenceSet) error {
	template := set.Spec.Template.DeepCopy()
	ws := &v1beta1.Workspace{Inference: template.Inference}
	ws.Namespace, ws.Name, ws.Annotations = set.Namespace, set.Name, template.Metadata.Annotations
	ws.Resource = v1beta1.ResourceSpec{
		InstanceType: template.Resource.InstanceType, Partition: template.Resource.Partition,
		Placement: template.Resource.Placement, LabelSelector: set.Spec.Selector.DeepCopy(),
	}
	if template.Inference == nil || template.Inference.Preset == nil {
		return usageError("%s, InferenceSet %s: spec.template.inference.preset must name a model, because the speed of a pod template is unknown", m.file, key(set))
	}
	if problem := outOfBounds(ws); problem != "" {
		return usageError("%s, InferenceSet %s: %s", m.file, key(set), problem)
	}
	m.workspaces = append(m.workspaces, ws)
	return nil
}

// requests reads the trace from a file, or generates it.
func (s *traceOptions) requests(d *deployed, stdin io.Reader) ([]simulation.Request, *simulation.Shape, error) {
	shapes, err := simulation.Shapes()
	if err != nil {
		return nil, nil, err
	}
	for i := range shapes {
		if shapes[i].Name != s.trace {
			continue
		}
		if err := d.measure(shapes[i].MeanRequest()); err != nil {
			return nil, nil, err
		}
		trace, err := s.generate(d, &shapes[i], s.seed)
		return trace, &shapes[i], err
	}
	from := stdin
	if s.trace != "-" || stdin == nil {
		file, err := os.Open(s.trace)
		if err != nil {
			return nil, nil, usageError("--trace: %w; the generated ones are %s", plainly(s.trace, err), orList(traceNames()))
		}
		defer func() { _ = file.Close() }() // it was read only
		from = file
	}
	trace, err := simulation.ReadTrace(from)
	if err != nil {
		return nil, nil, usageError("--trace: %s: %w", s.trace, err)
	}
	return trace, nil, d.measure(simulation.Mean(trace))
}

// generate returns a trace of a shape that keeps --load replicas busy. d has the speed for its requests.
func (s *traceOptions) generate(d *deployed, shape *simulation.Shape, seed uint64) ([]simulation.Request, error) {
	full := d.speed.Full()
	trace, isWhole := shape.Generate(s.load*full/d.speed.ServiceTime(shape.MeanRequest(), full), seed)
	switch {
	case len(trace) == 0:
		return nil, usageError("--load %s generates no requests: raise --load", digits(s.load))
	case !isWhole:
		return nil, usageError("--load %s generates more than %d requests: lower --load", digits(s.load), len(trace))
	}
	return trace, nil
}

func (s *traceOptions) describeTrace(shape *simulation.Shape, trace []simulation.Request) string {
	mean := simulation.Mean(trace)
	last := max(trace[len(trace)-1].At, 1)
	name := s.trace
	if name == "-" {
		name = "standard input"
	}
	out := fmt.Sprintf("%s: %d requests in %s h, %s/s; %d tokens in and %d out on average", name, len(trace),
		digits(last/3600), digits(float64(len(trace))/last), mean.Input, mean.Output)
	if shape != nil {
		out += fmt.Sprintf("; seed %d, after %s; chosen: %s", s.seed, shape.Source, shape.Chosen)
	}
	return out
}

// goal returns the goal: a share of the requests, and their time to first token.
func (s *traceOptions) goal(policy *autoscale.Policy) simulation.Goal {
	out := simulation.Goal{TTFT: s.ttft, Share: s.percentile / 100}
	for _, target := range policy.Targets {
		if target.Metric == autoscale.TimeToFirstToken && out.TTFT == 0 {
			out.TTFT = time.Duration(target.Value * float64(time.Second))
		}
	}
	if out.TTFT == 0 {
		out.TTFT = 5 * time.Second
	}
	return out
}

// setting returns the parameters of the simulation of a trace.
func (s *traceOptions) setting(d *deployed) simulation.Setting {
	return simulation.Setting{
		Speed: d.speed, StartUp: s.startUp, ReplicaPrice: d.price, Initial: s.initial, Interval: 15 * time.Second,
		Start: time.Date(2026, time.January, 5, 0, 0, 0, 0, time.UTC), // a Monday, for schedules
	}
}

// replay simulates the trace with each rule.
func (s *simulateCommand) replay(out *replay) {
	policy, trace := out.policy, out.requests
	setting := s.setting(out.deployed).For(policy, trace)
	out.add("this policy", simulation.Run(setting, trace, &simulation.Ours{Policy: *policy}))
	if s.quick {
		return
	}
	metric, target := ratioOf(policy)
	out.add("HPA: "+string(metric), simulation.Run(setting, trace, simulation.HPA(metric, target, policy.Min, policy.Max)))
	out.add("KEDA: WaitingRequests", simulation.Run(setting, trace, simulation.KEDA(kedaThreshold, policy.Min, policy.Max)))
	out.bound = simulation.WorkBound(setting, trace)
	out.addClairvoyant(setting, trace)
}

// kedaThreshold is the number of waiting requests for each replica in KAITO's examples.
const kedaThreshold = 10

// ratioOf returns the metric for the HorizontalPodAutoscaler: the policy's first metric of that kind, with its target,
// or else 0.7 of the KV cache.
func ratioOf(policy *autoscale.Policy) (autoscale.Metric, float64) {
	for _, target := range policy.Targets {
		switch target.Metric {
		case autoscale.RequestsInFlight, autoscale.KVCacheUse:
			return target.Metric, target.Value
		}
	}
	return autoscale.KVCacheUse, 0.7
}
