// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/calibration"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/planner"
)

// calibrations are signed files with measured runs for the catalogue.
type calibrations struct{ files, keys []string }

// bind declares --calibration and --calibration-key.
func (c *calibrations) bind(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&c.files, "calibration", nil, "signed file with measured runs, from kubectl berth bench --export; repeatable")
	cmd.Flags().StringArrayVar(&c.keys, "calibration-key", nil, "public key to trust for these files, in base64 (signature.key of a file); repeatable")
	// The only error is that the flag does not exist.
	_ = cmd.MarkFlagFilename("calibration", "yaml", "yml", "json")
}

// added returns a catalogue with the runs of all files, as the controller adds them.
func (c *calibrations) added(known *catalog.Catalog) (*catalog.Catalog, error) {
	keys, err := calibration.DecodeKeys(c.keys)
	if err != nil {
		return nil, usageError("--calibration-key: %w", err)
	}
	var files []calibration.Input
	for _, file := range c.files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, usageError("--calibration: %w", err)
		}
		files = append(files, calibration.Input{Name: file, Data: data})
	}
	out, _, refused := calibration.Overlay(known, files, keys)
	if len(refused) > 0 {
		return nil, usageError("--calibration: %w", refused[0])
	}
	return out, nil
}

// export writes a benchmark as a signed run.
type export struct {
	catalogFlags
	file, signKey, gpu, source string
}

func (e *export) bind(cmd *cobra.Command, w World) {
	e.catalogFlags.bind(cmd, w)
	f := cmd.Flags()
	f.StringVar(&e.file, "export", "", "signed calibration file to add the result to")
	f.StringVar(&e.signKey, "sign-key", "", "file with the Ed25519 private key in PEM, for --export: openssl genpkey -algorithm ed25519")
	f.StringVar(&e.gpu, "gpu", "", "name of the GPU in the catalogue, for --export (default: the GPU of the plan's machine type)")
	f.StringVar(&e.source, "source", "", "source of the measurement, for --export (default: kubectl berth bench)")
	_ = cmd.MarkFlagFilename("export", "yaml", "yml")
	_ = cmd.MarkFlagFilename("sign-key", "pem")
}

// check refuses invalid flags before the benchmark starts.
func (e *export) check() error {
	switch {
	case e.file == "" && (e.signKey != "" || e.gpu != "" || e.source != ""):
		return usageError("--sign-key, --gpu and --source need --export FILE")
	case e.file != "" && e.signKey == "":
		return usageError("--export needs --sign-key: make a key with openssl genpkey -algorithm ed25519 -out key.pem")
	}
	return nil
}

// write adds the run to those in the file, signs all, and returns the public key.
func (e *export) write(m *catalog.Measurement) (string, error) {
	secret, err := os.ReadFile(e.signKey)
	if err != nil {
		return "", usageError("--sign-key: %w", err)
	}
	key, err := calibration.DecodePrivateKey(secret)
	if err != nil {
		return "", usageError("--sign-key: %s: %w", e.signKey, err)
	}
	f := calibration.File{SchemaVersion: calibration.SchemaVersion}
	switch data, err := os.ReadFile(e.file); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return "", usageError("--export: %w", err)
	default:
		if f, err = calibration.Decode(data); err != nil {
			return "", usageError("--export: %s is not a calibration file: %w", e.file, err)
		}
	}
	f.Measurements = append(f.Measurements, *m)
	if err := f.Sign(key); err != nil {
		return "", usageError("--export: %w", err)
	}
	data, err := f.Encode()
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(e.file, data, 0o644); err != nil {
		return "", usageError("--export: %w", err)
	}
	return f.Signature.Key, nil
}

// measurement converts a benchmark's result to a run of a single replica.
func (e *export) measurement(r *benchResult, plan *planner.Plan, image string) (*catalog.Measurement, error) {
	replicas := max(plan.DataParallel, 1)
	switch {
	case r.Failed > 0:
		return nil, clusterError("nothing is exported: %s failed: %s", count(r.Failed, "request"), r.FirstFailure)
	case plan.Artifact == nil:
		return nil, usageError("--export: the Workspace has its own pod template, so its plan names no model to measure")
	case plan.Nodes > 1, plan.AdapterSlots > 0, plan.ExpertParallel && replicas > 1:
		return nil, usageError("--export supports only plans with one machine, without adapters, and without experts shared by replicas")
	case r.Concurrency%replicas > 0:
		return nil, usageError("--export: --concurrency is %d: it must be a multiple of the plan's %d replicas", r.Concurrency, replicas)
	}
	gpu, err := e.gpuOf(plan)
	if err != nil {
		return nil, err
	}
	a := plan.Artifact
	m := &catalog.Measurement{
		Engine: plan.Engine, Version: strings.TrimPrefix(tagOf(image), "v"), Model: a.Repo, Quantization: a.Quantization,
		KVType: plan.KVCacheType, GPU: gpu, TensorParallel: max(plan.TensorParallel, 1), PipelineParallel: plan.PipelineParallel,
		WholeExperts: plan.ExpertParallel, InputTokens: r.MeanInputTokens, OutputTokens: r.MeanOutputTokens,
		Concurrency: r.Concurrency / replicas, TTFTMillis: r.meanTTFT, TPOTMillis: r.meanTPOT,
		OutputTokensPerSecond: r.OutputTokensPerSecond / float64(replicas), Source: cmp.Or(e.source, "kubectl berth bench"),
	}
	if a.IsPinned() {
		m.Revision = a.Revision
	}
	return m, nil
}

// gpuOf returns the GPU's name in the catalogue. A plan has only its class, and a class can have several GPUs.
func (e *export) gpuOf(plan *planner.Plan) (string, error) {
	c, err := e.load()
	if err != nil {
		return "", err
	}
	if e.gpu != "" {
		if gpu, known := c.GPU(e.gpu); known {
			return gpu.Name, nil
		}
		return "", usageError("--gpu: %q is not the name of a GPU: use %s", e.gpu, orList(c.SimilarGPUs(e.gpu)))
	}
	if s, known := c.SKU(plan.InstanceType); known && s.GPU != "" {
		return s.GPU, nil
	}
	return "", usageError("--export: the plan names no machine type of the catalogue: name the GPU with --gpu, for example --gpu A100-80-SXM")
}

// tagOf returns the tag of an image; empty if it has none.
func tagOf(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if colon := strings.LastIndex(image, ":"); colon > strings.LastIndex(image, "/") {
		return image[colon+1:]
	}
	return ""
}

// vLLM logs the KV cache of each worker once, at its start.
const (
	loggedCache = `Available KV cache memory: (\d+\.\d+) GiB`
	mostOfLog   = 16 << 20
)

// startOf reads an engine's memory at its start from its log; zero if the log no longer has it.
func startOf(ctx context.Context, cluster *Cluster, ws *v1beta1.Workspace, plan *planner.Plan) (catalog.MeasuredMemory, error) {
	none := catalog.MeasuredMemory{}
	var leader logsCommand
	pod, err := leader.pod(ctx, cluster, ws)
	if err != nil || pod == nil {
		return none, err
	}
	log, err := cluster.Pods.Log(ctx, client.ObjectKeyFromObject(pod), &corev1.PodLogOptions{Container: leader.container(pod)})
	if err != nil {
		return none, worded(err, "log of pod "+key(pod))
	}
	defer func() { _ = log.Close() }() // it was read only
	least, pattern := 0.0, regexp.MustCompile(loggedCache)
	for lines := bufio.NewScanner(io.LimitReader(log, mostOfLog)); lines.Scan(); {
		if found := pattern.FindStringSubmatch(lines.Text()); found != nil {
			// The pattern matches only numbers.
			if gib, _ := strconv.ParseFloat(found[1], 64); least == 0 || gib < least {
				least = gib
			}
		}
	}
	if least == 0 || plan.MaxNumSeqs == 0 || plan.MaxBatchedTokens == 0 || plan.GPUMemoryUtilization == 0 {
		return none, nil
	}
	return catalog.MeasuredMemory{
		KVCacheGiB: least, MaxModelLen: plan.MaxModelLen, MaxNumSeqs: plan.MaxNumSeqs, MaxBatchedTokens: plan.MaxBatchedTokens,
		Utilization: plan.GPUMemoryUtilization,
	}, nil
}

// exported writes a benchmark's result as a signed calibration file.
func (b *benchCommand) exported(ctx context.Context, w World, cluster *Cluster, ws *v1beta1.Workspace, r *benchResult) error {
	revisions, err := cluster.revisions(ctx, ws)
	if err != nil {
		return err
	}
	current := accepted(revisions)
	if current == nil {
		return clusterError("Workspace %s has no accepted plan", key(ws))
	}
	m, err := b.export.measurement(r, &current.Plan, engineImage(&current.Template))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	if m.Memory, err = startOf(ctx, cluster, ws, &current.Plan); err != nil {
		return err
	}
	now := w.Clock.Now().UTC()
	m.Date = now.Format("2006-01-02")
	m.Name = fmt.Sprintf("%s-%s-tp%d-%dx%d-c%d-%s", path.Base(m.Model), m.GPU, m.TensorParallel, m.InputTokens, m.OutputTokens,
		m.Concurrency, now.Format("20060102T150405"))
	public, err := b.export.write(m)
	if err != nil {
		return err
	}
	if m.Memory == (catalog.MeasuredMemory{}) {
		fmt.Fprintln(w.Err, "The engine's log no longer shows the KV cache memory, so the file leaves it out.")
	}
	fmt.Fprintf(w.Err, "Wrote %s, signed by %s.\n", b.export.file, public)
	return nil
}

// engineImage returns the image of the engine in a pod; empty if unknown.
func engineImage(pod *corev1.PodTemplateSpec) string {
	if containers := pod.Spec.Containers; len(containers) > 0 {
		return containers[0].Image
	}
	return ""
}
