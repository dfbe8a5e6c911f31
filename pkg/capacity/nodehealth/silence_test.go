// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package nodehealth_test

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/nodehealth"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// nodes returns nodes with this Ready status since that many minutes past noon: the cluster's own, or bought ones.
func nodes(isBought bool, count int, status corev1.ConditionStatus, minutes int) []corev1.Node {
	node := corev1.Node{}
	if isBought {
		node.Labels = map[string]string{v1beta1.LabelWorkspaceUID: "uid"}
	}
	node.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: status, LastTransitionTime: metav1.NewTime(noon.Add(time.Duration(minutes) * time.Minute)),
	}}
	return slices.Repeat([]corev1.Node{node}, count)
}

// TestSilence checks a machine without contact since noon.
func TestSilence(t *testing.T) {
	const (
		unheard    = "none of the cluster's own nodes is Ready: the control plane has lost contact with their kubelets, so no machine is replaced"
		none       = "none of the cluster's nodes is Ready: the control plane has lost contact with their kubelets, so no machine is replaced"
		most       = "most of the cluster's own nodes are not Ready: the control plane has lost contact with their kubelets, so no machine is replaced"
		up         = corev1.ConditionTrue
		mute       = corev1.ConditionUnknown
		own, ofOne = false, true // the cluster's, a Workspace's
	)
	tests := []struct {
		reason string
		others [][]corev1.Node
		from   int // minutes past noon
		whyNot string
	}{
		{"nobody looked", nil, 0, ""},
		{"the only node that there is", [][]corev1.Node{{}}, 0, ""},
		{"the cluster's own are heard", [][]corev1.Node{nodes(own, 1, up, -60)}, 0, ""},
		{"all machines have gone together", [][]corev1.Node{nodes(own, 1, up, -60), nodes(ofOne, 9, mute, 0)}, 0, ""},
		{"none of its own is", [][]corev1.Node{nodes(own, 1, corev1.ConditionFalse, 1), nodes(ofOne, 1, up, -60)}, 0, unheard},
		{"one has said nothing yet", [][]corev1.Node{{{}}}, 0, unheard},
		{"there are machines only, and none is heard", [][]corev1.Node{nodes(ofOne, 1, mute, 0)}, 0, none},
		{"there are machines only, and one is heard", [][]corev1.Node{nodes(ofOne, 8, mute, 0), nodes(ofOne, 1, up, -60)}, 0, ""},
		{"few of few are silent", [][]corev1.Node{nodes(own, 2, mute, 0), nodes(own, 1, up, -60)}, 0, ""},
		{"not quite most", [][]corev1.Node{nodes(own, 54, mute, 0), nodes(own, 46, up, -60)}, 0, ""},
		{"most, as where the control plane's nodes hear themselves", [][]corev1.Node{nodes(own, 55, mute, 0), nodes(own, 45, up, -60)}, 0, most},
		{"the first ones are heard again", [][]corev1.Node{nodes(own, 1, up, 31), nodes(own, 1, up, 30), nodes(own, 1, mute, 0)}, 30, ""},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			silence := nodehealth.Silence{}
			if test.others != nil {
				silence = nodehealth.Listen(slices.Concat(append(test.others, nodes(ofOne, 1, mute, 0))...))
			}
			want := noon.Add(time.Duration(test.from) * time.Minute)
			if test.whyNot != "" {
				want = time.Time{}
			}
			if from, whyNot := silence.Counts(noon); !from.Equal(want) || whyNot != test.whyNot {
				t.Errorf("it counts since %s, or not: %q; want %s, %q", from, whyNot, want, test.whyNot)
			}
		})
	}
}
