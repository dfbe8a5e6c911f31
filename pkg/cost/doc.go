// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cost keeps the books of machine time: who held which machine, in which state, at which price, and how many
// tokens its engine made meanwhile.
//
// It decides how time is attributed, how long details are kept, and how large a ledger may grow. Time is counted in
// whole milliseconds and money in whole nanodollars, so that nothing is lost when periods or accounts are merged. The
// package has no clock, client or I/O. It must not know how machines are bought or who may read the books.
package cost
