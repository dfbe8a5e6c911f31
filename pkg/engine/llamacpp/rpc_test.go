// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package llamacpp_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/pkg/engine"
	"github.com/modelberth/modelberth/pkg/engine/llamacpp"
)

// spread returns the input of one member of a group of three machines.
func spread(t *testing.T, rank string) engine.Input {
	t.Helper()
	in := input(preset(t), 1)
	in.Data.MultiNode, in.Data.WorkerCommand = true, []string{"/app/rpc-server"}
	in.Plan.Nodes = 3
	in.Member = &engine.Member{
		Rank: rank, Leader: "chat-0.chat-headless", Workers: []string{"chat-worker-1.chat-headless", "chat-worker-2.chat-headless"},
	}
	return in
}

func TestSeveralMachines(t *testing.T) {
	for _, tc := range []struct {
		reason, rank string
		want         engine.Command
	}{
		{
			reason: "the leader names where the workers listen, in the order of their ranks", rank: "0",
			want: engine.Command{
				Args: strings.Fields("--model /models/q8/part-1.gguf --alias some-model --host 0.0.0.0 --port 5000 --ctx-size 16384 --parallel 4" +
					" --n-gpu-layers 999 --rpc chat-worker-1.chat-headless:50052,chat-worker-2.chat-headless:50052" +
					" --split-mode layer --fit off --metrics --jinja"),
				HealthPath: "/health", BusyMetrics: []string{"llamacpp:requests_processing", "llamacpp:requests_deferred"},
			},
		},
		{
			reason: "a worker runs another program, which needs neither weights nor the user's flags", rank: "$(POD_INDEX)",
			want: engine.Command{
				Entrypoint: []string{"/app/rpc-server"}, Args: strings.Fields("--host 0.0.0.0 --port 50052"), OpenPort: 50052,
				IgnoresSignals: true, NoWeights: true,
			},
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			got, err := llamacpp.Command(spread(t, tc.rank))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("Command: -want +got:\n%s", diff)
			}
		})
	}
}

func TestImpossibleGroups(t *testing.T) {
	for _, tc := range []struct {
		reason string
		change func(*engine.Input)
		want   string
	}{
		{
			"an image without the RPC server", func(in *engine.Input) { in.Data.WorkerCommand = nil },
			"rendering llamacpp: the plan has 3 machines, but the engine has no workerCommand: set it in engineOverrides of a catalogue file",
		},
		{
			"nobody says who is who", func(in *engine.Input) { in.Member = nil },
			"rendering llamacpp: the plan has 3 machines: name the member to render, and 2 workers",
		},
		{
			"a worker is missing", func(in *engine.Input) { in.Member.Workers = in.Member.Workers[:1] },
			"rendering llamacpp: the plan has 3 machines: name the member to render, and 2 workers",
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			in := spread(t, "0")
			tc.change(&in)
			if _, err := llamacpp.Command(in); err == nil || err.Error() != tc.want {
				t.Errorf("error %v, want %s", err, tc.want)
			}
		})
	}
}
