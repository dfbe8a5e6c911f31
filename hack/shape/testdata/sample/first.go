// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sample has one of everything measured.
package sample

type state struct{ a, b, c int }

type reconciler struct{}

func (r *reconciler) Reconcile() { s := &state{}; r.begin(s) }

func (r *reconciler) begin(s *state) {
	s.a = 1
	end(s)
}
