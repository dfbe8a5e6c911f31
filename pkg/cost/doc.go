// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cost is the ledger of machine time: the Workspace of each machine, its states and price, and the tokens of
// its engine.
//
// It decides the attribution of time, the age of details, and the size of a ledger. Time is counted in whole
// milliseconds and money in whole nanodollars, so merging periods or accounts loses nothing. The package has no clock,
// client or I/O. It must not know how machines are bought or who may read the ledger.
package cost
