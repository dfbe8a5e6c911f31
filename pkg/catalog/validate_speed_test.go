// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/pkg/catalog"
)

func TestSpeedErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		change func(*catalog.Speed)
		want   string
	}{
		"none": {
			reason: "an engine whose speed is not known is no error",
			change: func(s *catalog.Speed) { *s = catalog.Speed{} },
		},
		"as it is": {
			reason: "the presets are right",
			change: func(*catalog.Speed) {},
		},
		"no basis": {
			reason: "a figure says where it comes from",
			change: func(s *catalog.Speed) { s.Basis = "" },
			want:   `speed.basis: "" must be exact, measured or estimated`,
		},
		"no default": {
			reason: "every format finds a kernel",
			change: func(s *catalog.Speed) { delete(s.Dense, "default") },
			want:   "speed.dense: it must have a kernel default for all other formats",
		},
		"share above 1": {
			reason: "nothing is faster than the data sheet",
			change: func(s *catalog.Speed) { s.Dense["fp8"] = catalog.Kernel{Bandwidth: 1.2, Compute: 0.5} },
			want:   "speed.dense.fp8.bandwidth: 1.2 must be above 0 and at most 1",
		},
		"no bandwidth": {
			reason: "a time would be infinite",
			change: func(s *catalog.Speed) { s.KVBandwidth = 0 },
			want:   "speed.kvBandwidth: 0 must be above 0 and at most 1",
		},
		"not a number": {
			reason: "NaN passes comparisons",
			change: func(s *catalog.Speed) { s.StepMicros = math.NaN() },
			want:   "speed.stepMicros: NaN must be from 0 to 1e+06",
		},
		"a kernel of a generation": {
			reason: "its key is a compute capability, too",
			change: func(s *catalog.Speed) {
				s.Experts["mxfp4"] = catalog.Kernel{
					Bandwidth: 0.5, Compute: 0.5, Generations: map[string]catalog.Variant{"blackwell": {Peak: "fp8"}},
				}
			},
			want: `speed.experts.mxfp4.generations.blackwell: "blackwell" must be two numbers such as "8.0"`,
		},
		"a former release without a number": {
			reason: "nothing would be older",
			change: func(s *catalog.Speed) { s.Former.Until = "" },
			want:   `speed.former.until: "" must be a release such as 0.14`,
		},
		"a former cache that takes no time": {
			reason: "a share of nothing would divide by zero",
			change: func(s *catalog.Speed) { s.FormerCache.Share = 0 },
			want:   "speed.formerCache.share: 0 must be above 0 and at most 1",
		},
		"attention that never begins": {
			reason: "no prompt is so long",
			change: func(s *catalog.Speed) { s.AttentionTokens = 1 << 17 },
			want:   "speed.attentionTokens: 131072 must be from 0 to 65536",
		},
		"blocks without rows": {
			reason: "a block has rows",
			change: func(s *catalog.Speed) { s.FormerBlocks.Rows = 0 },
			want:   "speed.formerBlocks.rows: 0 must be from 1 to 4096",
		},
		"blocks of a release without a number": {
			reason: "nothing would be older",
			change: func(s *catalog.Speed) { s.FormerBlocks.Until = "soon" },
			want:   `speed.formerBlocks.until: "soon" must be a release such as 0.14`,
		},
		"generation": {
			reason: "the key is a compute capability or a class",
			change: func(s *catalog.Speed) {
				s.Generations = map[string]catalog.Generation{"a hopper": {Bandwidth: 1, Compute: 1, NarrowCompute: 1}}
			},
			want: `speed.generations.a hopper: "a hopper" must be a compute capability such as "8.0", or a class of GPUs`,
		},
		"points that do not ascend": {
			reason: "there would be nothing between them",
			change: func(s *catalog.Speed) { s.AllReduce[0].Bytes[1] = s.AllReduce[0].Bytes[0] },
			want:   "speed.allReduce[0].bytes[1]: 16384 must be greater than the previous one",
		},
		"one point": {
			reason: "there is nothing to interpolate",
			change: func(s *catalog.Speed) { s.AllReduce[0].Micros = s.AllReduce[0].Micros[:1] },
			want: "speed.allReduce[0]: 5 bytes and 1 micros must be at least two points, with as many bytes " +
				"as micros",
		},
		"two tables": {
			reason: "which of them holds would depend on their order",
			change: func(s *catalog.Speed) { s.AllReduce = append(s.AllReduce, s.AllReduce[0]) },
			want:   "speed.allReduce[24]: nvlink3 of 2 GPUs already has a table",
		},
		"no way between machines": {
			reason: "a time would be infinite",
			change: func(s *catalog.Speed) { s.Hops.Ethernet.GBs = 0 },
			want:   "speed.hops.ethernet.gbs: 0 must be above 0 and at most 10000",
		},
	} {
		t.Run(name, func(t *testing.T) {
			e, known := loadPresets(t).Engine("vllm")
			if !known {
				t.Fatal("there is no engine vllm")
			}
			e = e.Clone()
			tc.change(&e.Speed)
			got := ""
			if err := e.Validate(); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if strings.Contains(got, "\n") {
				t.Errorf("error has several lines: %q", got)
			}
		})
	}
}
