// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/workload"
)

// logsCommand is kubectl berth logs.
type logsCommand struct {
	connection

	weights, follow, previous bool
	member                    int
	tail                      int64
	// since is the time when a followed log was interrupted.
	since *metav1.Time
}

func newLogs(w World) *cobra.Command {
	l := &logsCommand{}
	cmd := &cobra.Command{
		Use:   "logs NAME",
		Short: "Print the log of a Workspace's engine, or of its agent",
		Long: `Print the log of a Workspace's engine: of the leader, or of another member of the group.

With --follow, the log continues when the container restarts or another pod replaces it.`,
		Example: `  kubectl berth logs my-model --tail 50
  kubectl berth logs my-model --weights -f
  kubectl berth logs my-model --member 1
  kubectl berth logs my-model --previous`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return l.run(cmd.Context(), w, args[0]) },
	}
	f := cmd.Flags()
	f.BoolVar(&l.weights, "weights", false, "print the log of the agent, which fetches the weights, instead of the engine's")
	f.IntVar(&l.member, "member", 0, "number of the group's pod; 0 is the leader")
	f.BoolVarP(&l.follow, "follow", "f", false, "follow the log, also across restarts")
	f.BoolVar(&l.previous, "previous", false, "print the container's log from before its last restart")
	f.Int64Var(&l.tail, "tail", -1, "number of lines to print from the end of the log; -1 means all")
	l.connection.bind(cmd, w)
	return cmd
}

func (l *logsCommand) run(ctx context.Context, w World, name string) error {
	switch {
	case l.follow && l.previous:
		return usageError("--previous prints the log of a stopped container, which cannot be followed: leave --follow out")
	case l.member < 0:
		return usageError("--member is %d: it must be 0 (the leader) or greater", l.member)
	case l.tail < -1:
		return usageError("--tail is %d: it must be a number of lines, or -1 for all", l.tail)
	}
	cluster, err := l.open()
	if err != nil {
		return err
	}
	ws, err := cluster.workspace(ctx, name)
	if err != nil {
		return err
	}
	if l.follow {
		return l.followed(ctx, w, cluster, ws)
	}
	pod, err := l.pod(ctx, cluster, ws)
	if err != nil {
		return err
	}
	if pod == nil {
		return clusterError("Workspace %s has no pod number %d: %s", key(ws), l.member, l.others(ctx, cluster, ws))
	}
	return l.print(ctx, w.Out, cluster, pod)
}

// pod returns the selected pod; nil if it does not exist now.
func (l *logsCommand) pod(ctx context.Context, cluster *Cluster, ws *v1beta1.Workspace) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	pods, err := cluster.pods(ctx, ws.Name)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(pods, func(pod corev1.Pod) bool { return memberOf(&pod) == l.member })
	if at < 0 {
		return nil, nil
	}
	return &pods[at], nil
}

// others names the pods that exist, as advice.
func (l *logsCommand) others(ctx context.Context, cluster *Cluster, ws *v1beta1.Workspace) string {
	pods, err := cluster.pods(ctx, ws.Name)
	if err != nil || len(pods) == 0 {
		return fmt.Sprintf("kubectl berth status %s shows its progress", ws.Name)
	}
	var members []int
	for i := range pods {
		members = append(members, memberOf(&pods[i]))
	}
	slices.Sort(members)
	var numbers []string
	for _, member := range members {
		numbers = append(numbers, strconv.Itoa(member))
	}
	return "use " + orList(numbers)
}

// container returns the selected container: with --weights, the init container that fetches weights; otherwise the
// engine's, named after the Workspace, or the first container of a user's own template.
func (l *logsCommand) container(pod *corev1.Pod) string {
	if l.weights {
		return workload.WeightsContainer(pod.Labels[v1beta1.LabelWorkspace])
	}
	name := pod.Labels[v1beta1.LabelWorkspace]
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == name {
			return name
		}
	}
	return pod.Spec.Containers[0].Name
}

// hasWeights reports whether a pod fetches weights.
func hasWeights(pod *corev1.Pod) bool {
	name := workload.WeightsContainer(pod.Labels[v1beta1.LabelWorkspace])
	return slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == name })
}

// print copies the present log, or follows the log until it ends.
func (l *logsCommand) print(ctx context.Context, out io.Writer, cluster *Cluster, pod *corev1.Pod) error {
	if l.weights && !hasWeights(pod) {
		return usageError("pod %s fetches no weights: leave --weights out", key(pod))
	}
	options := &corev1.PodLogOptions{Container: l.container(pod), Follow: l.follow, Previous: l.previous, SinceTime: l.since}
	if l.tail >= 0 {
		options.TailLines = new(l.tail)
	}
	log, err := cluster.Pods.Log(ctx, client.ObjectKeyFromObject(pod), options)
	if err != nil {
		return worded(err, fmt.Sprintf("log of container %s of pod %s", options.Container, key(pod)))
	}
	defer func() { _ = log.Close() }() // it was read only
	if _, err := io.Copy(out, log); err != nil && ctx.Err() == nil {
		return clusterError("log of container %s of pod %s was interrupted: %w", options.Container, key(pod), err)
	}
	return nil
}

// followed copies the logs of successive containers. If a stream ends while its container runs, it continues at the
// interruption.
func (l *logsCommand) followed(ctx context.Context, w World, cluster *Cluster, ws *v1beta1.Workspace) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changed := cluster.changes(ctx, w.Clock, ws)
	var seen, waiting string
	for {
		pod, err := l.pod(ctx, cluster, ws)
		if err != nil {
			return err
		}
		id, why := l.started(pod)
		switch {
		case id == "" && why != waiting:
			fmt.Fprintf(w.Err, "--- %s\n", why)
		case id != "" && id != seen && seen != "":
			fmt.Fprintf(w.Err, "--- pod %s, restarted\n", pod.Name)
			l.tail, l.since = -1, nil // every line of the new log is unseen
		}
		var again <-chan time.Time
		if id != "" && (id != seen || why == containerRuns) {
			if err := l.print(ctx, w.Out, cluster, pod); err != nil {
				return err
			}
			l.tail, l.since = -1, new(metav1.NewTime(w.Clock.Now()))
			again = w.Clock.After(rewatchAfter)
		}
		seen, waiting = cmp.Or(id, seen), why
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-again:
		}
	}
}

// containerRuns is started's second result for a running container: its log may grow.
const containerRuns = "runs"

// started returns an ID of the running or the last container, and containerRuns if it still runs. If there is no log
// yet, the ID is empty, and the second result is the reason.
func (l *logsCommand) started(pod *corev1.Pod) (string, string) {
	if pod == nil {
		return "", fmt.Sprintf("waiting for pod number %d", l.member)
	}
	name := l.container(pod)
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		id := fmt.Sprintf("%s/%d", pod.UID, status.RestartCount)
		switch {
		case status.Name != name:
		case status.State.Running != nil:
			return id, containerRuns
		case status.State.Terminated != nil:
			return id, ""
		}
	}
	stage, _ := podStage(pod)
	return "", fmt.Sprintf("pod %s: %s", pod.Name, stage)
}
