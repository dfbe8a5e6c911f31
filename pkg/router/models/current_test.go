// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package models

import "testing"

func TestCurrent(t *testing.T) {
	var c Current
	table, next := c.Load()
	if len(table.List(func(string) bool { return true })) != 0 {
		t.Error("the zero value has models")
	}
	select {
	case <-next:
		t.Error("there is another table before a Store")
	default:
	}
	second := New([]Owner{{Namespace: "a", Name: "b"}})
	c.Store(second)
	select {
	case <-next:
	default:
		t.Error("Store does not announce the next table")
	}
	if got, after := c.Load(); got != second || after == next {
		t.Error("Load does not return the stored table with a channel of its own")
	}
}
