// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package sample

func (r *reconciler) again(s *state) { last(s) }
