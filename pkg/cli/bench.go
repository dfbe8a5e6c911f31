// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// benchCommand is kubectl berth bench.
type benchCommand struct {
	connection
	output
	load

	model  string
	record bool
	export export
}

func newBench(w World) *cobra.Command {
	b := &benchCommand{}
	cmd := &cobra.Command{
		Use:   "bench NAME",
		Short: "Measure the speed of a Workspace and compare it with its plan",
		Long: `Measure the speed of a Workspace and compare it with its plan: time to the first token, time per
further token, and tokens per second. Requests go through a port-forward to the pod of the endpoint.

The default load is the plan's. Other requests during the measurement distort it. --record writes the tokens per
minute into the Workspace's status, with your permissions, as status.performance.metrics.peakTokensPerMinute and
the condition BenchmarkCompleted; readiness never depends on it.

--export FILE writes a signed calibration file for plan --calibration FILE. Plans for the same model, GPU,
format and layout then use measured figures, if their load is similar. The controller uses the file only if the
administrator adds it to the chart's value calibration. The size of the KV cache comes from the engine's log.`,
		Example: `  kubectl berth bench my-model
  kubectl berth bench my-model --requests 64 --concurrency 16 --input-tokens 512 --output-tokens 128
  kubectl berth bench my-model --record -o json
  kubectl berth bench my-model --export a10.yaml --sign-key key.pem`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return b.run(cmd.Context(), w, args[0]) },
	}
	f := cmd.Flags()
	f.IntVar(&b.Requests, "requests", 0, "number of requests (default: four times the concurrency)")
	f.IntVar(&b.Concurrency, "concurrency", 0, "concurrent requests (default: the plan's)")
	f.IntVar(&b.InputTokens, "input-tokens", 0, "approximate tokens of each prompt (default: the plan's)")
	f.IntVar(&b.OutputTokens, "output-tokens", 0, "tokens of each answer (default: the plan's)")
	f.StringVar(&b.model, "model", "", "name of the model (default: the endpoint's first)")
	f.BoolVar(&b.record, "record", false, "write the result into the Workspace's status")
	b.export.bind(cmd, w)
	b.connection.bind(cmd, w)
	b.output.bind(cmd, false)
	return cmd
}

// check refuses invalid flags.
func (b *benchCommand) check() error {
	for _, flag := range []struct {
		name  string
		value int
	}{{"requests", b.Requests}, {"concurrency", b.Concurrency}, {"input-tokens", b.InputTokens}, {"output-tokens", b.OutputTokens}} {
		if flag.value < 0 {
			return usageError("--%s is %d: it must be at least 1", flag.name, flag.value)
		}
	}
	return b.export.check()
}

func (b *benchCommand) run(ctx context.Context, w World, name string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := b.check(); err != nil {
		return err
	}
	cluster, err := b.open()
	if err != nil {
		return err
	}
	ws, err := cluster.workspace(ctx, name)
	if err != nil {
		return err
	}
	server, err := cluster.endpoint(ctx, ws)
	if err != nil {
		return err
	}
	model, err := servedModel(ws, b.model)
	if err != nil {
		return err
	}
	asked := b.load.filled(ws.Status.Plan)
	if !b.forPrograms() {
		fmt.Fprintf(w.Err, "Measuring %s of Workspace %s: %s.\n", model, key(ws), asked)
	}
	result, err := asked.run(ctx, w.Clock, server, model)
	if err != nil {
		return err
	}
	result.Predicted = predicted(ws.Status.Plan)
	if err := b.show(w, result); err != nil {
		return err
	}
	if b.export.file != "" {
		if err := b.exported(ctx, w, cluster, ws, result); err != nil {
			return err
		}
	}
	if !b.record {
		return nil
	}
	return b.write(ctx, w, cluster, name, result)
}

// predicted returns the plan's speed; nil if unknown.
func predicted(plan *v1beta1.PlanStatus) *v1beta1.PlanPerformance {
	if plan == nil {
		return nil
	}
	return plan.Performance
}

func (b *benchCommand) show(w World, r *benchResult) error {
	if b.forPrograms() {
		return b.data(w.Out, r)
	}
	rows := [][]string{
		{"", "P50", "P90", "PLAN"},
		{"time to first token", millis(r.TTFTMillis.P50), millis(r.TTFTMillis.P90), none},
		{"time per token", millis(r.TPOTMillis.P50), millis(r.TPOTMillis.P90), none},
		{"tokens/s per request", digits(r.RequestTokensPerSecond.P50), digits(r.RequestTokensPerSecond.P90), none},
		{"tokens/s in total", digits(r.OutputTokensPerSecond), "", none},
	}
	if p := r.Predicted; p != nil {
		rows[1][3], rows[2][3] = shortDuration(p.TimeToFirstToken), shortDuration(p.TimePerOutputToken)
		rows[4][3] = shortNumber(p.OutputTokensPerSecond)
	}
	if err := table(w.Out, "", rows); err != nil {
		return err
	}
	out := page{w.Out, newStyle(w)}
	out.line("")
	out.line("%s in %s s; %s tokens in and out per minute.",
		count(r.Requests-r.Failed, "answer"), digits(r.DurationSeconds), digits(r.TokensPerMinute))
	out.line("On average, a prompt had %d tokens and an answer %d.", r.MeanInputTokens, r.MeanOutputTokens)
	if p := r.Predicted; p != nil && !r.sameLoad(p) {
		out.point(out.paint(yellow, "!"), fmt.Sprintf("The plan's figures are for %s at once, with %d tokens in and %d out each (%s).",
			count(int(p.Concurrency), "request"), p.InputTokens, p.OutputTokens, p.Basis))
	}
	if r.Failed > 0 {
		out.point(out.paint(red, "!"), fmt.Sprintf("%s failed: %s", count(r.Failed, "request"), r.FirstFailure))
	}
	return nil
}

// peakTokensPerMinute is KAITO's key for the result of a benchmark.
const peakTokensPerMinute = "peakTokensPerMinute"

// write stores the result where KAITO's clients read it. Nothing else depends on it.
func (b *benchCommand) write(ctx context.Context, w World, cluster *Cluster, name string, r *benchResult) error {
	if r.Failed > 0 {
		return clusterError("nothing is recorded: %s failed: %s", count(r.Failed, "request"), r.FirstFailure)
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	ws, err := cluster.workspace(ctx, name)
	if err != nil {
		return err
	}
	engine, version, quantization := b.engine(ctx, cluster, ws)
	before := ws.DeepCopy()
	if ws.Status.Performance == nil {
		ws.Status.Performance = &v1beta1.Performance{}
	}
	if ws.Status.Performance.Metrics == nil {
		ws.Status.Performance.Metrics = map[string]v1beta1.Metric{}
	}
	config := map[string]string{
		"durationSec": digits(r.DurationSeconds), "inputTokens": strconv.Itoa(r.InputTokens), "outputTokens": strconv.Itoa(r.OutputTokens),
		"maxConcurrency": strconv.Itoa(r.Concurrency), "engine": engine, "engineVersion": version, "quantization": quantization,
	}
	for key, value := range config {
		if value == "" {
			delete(config, key)
		}
	}
	ws.Status.Performance.Metrics[peakTokensPerMinute] = v1beta1.Metric{
		Description: "tokens in and out per minute under the load of kubectl berth bench",
		Value:       strconv.FormatFloat(r.TokensPerMinute, 'f', 0, 64), Unit: "tokens/min", Config: config,
	}
	meta.SetStatusCondition(&ws.Status.Conditions, metav1.Condition{
		Type: v1beta1.ConditionBenchmarkCompleted, Status: metav1.ConditionTrue, Reason: v1beta1.ReasonBenchmarkCompleted,
		Message: "kubectl berth bench has recorded its result", ObservedGeneration: ws.Generation,
		LastTransitionTime: metav1.NewTime(w.Clock.Now()),
	})
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := cluster.Objects.Status().Patch(ctx, ws, patch, fieldOwner); err != nil {
		return worded(err, "status of Workspace "+key(ws))
	}
	_, err = fmt.Fprintf(w.Err, "Recorded as %s of Workspace %s.\n", peakTokensPerMinute, key(ws))
	return err
}

// engine returns the measured engine's name, its image's tag, and the format of the weights; empty if unknown.
func (b *benchCommand) engine(ctx context.Context, cluster *Cluster, ws *v1beta1.Workspace) (string, string, string) {
	revisions, err := cluster.revisions(ctx, ws)
	current := accepted(revisions)
	if err != nil || current == nil {
		return "", "", ""
	}
	quantization := ""
	if current.Plan.Artifact != nil {
		quantization = current.Plan.Artifact.Quantization
	}
	return current.Plan.Engine, tagOf(engineImage(&current.Template)), quantization
}
