// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cost is the ledger of machine time. It has the Workspace of each machine, its states and its price, and the
// tokens of each engine.
//
// It decides which account is charged for a time, how long details are kept, and how large a ledger may be. It counts
// time in whole milliseconds and money in whole nanodollars, so merging periods or accounts loses nothing. The package
// has no clock, client or I/O. It must not know how machines are bought or who may read the ledger.
package cost
