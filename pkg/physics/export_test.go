// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package physics

// LawOf is lawOf for tests.
var LawOf = lawOf

// Older is older, for the tests.
var Older = older
