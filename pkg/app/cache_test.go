// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestRulesOnly(t *testing.T) {
	for _, test := range []struct {
		reason         string
		in, wantLabels map[string]string
		annotations    map[string]string
		want           map[string]string
	}{
		{"nothing decides", map[string]string{"team": "a"}, map[string]string{}, map[string]string{"note": "x"}, nil},
		{
			"the rules stay",
			map[string]string{"pod-security.kubernetes.io/enforce": "baseline"},
			map[string]string{"pod-security.kubernetes.io/enforce": "baseline"},
			map[string]string{
				"modelberth.dev/spending-ceiling": "50", "modelberth.dev/monthly-budget": "500", "modelberth.dev/budget-action": "alert", "note": "x",
			},
			map[string]string{"modelberth.dev/spending-ceiling": "50", "modelberth.dev/monthly-budget": "500", "modelberth.dev/budget-action": "alert"},
		},
	} {
		t.Run(test.reason, func(t *testing.T) {
			got, err := rulesOnly(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: test.in, Annotations: test.annotations}})
			if err != nil {
				t.Fatal(err)
			}
			want := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: test.wantLabels, Annotations: test.want}}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
