// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package models

import "sync"

// Current has the current table, and notifies readers that wait for the next one. The zero value has an empty table.
type Current struct {
	mu    sync.RWMutex
	table *Table
	next  chan struct{}
}

// Store replaces the table.
func (c *Current) Store(table *Table) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next != nil {
		close(c.next)
	}
	c.table, c.next = table, make(chan struct{})
}

// Load returns the current table, and a channel that is closed when a new table replaces it.
func (c *Current) Load() (*Table, <-chan struct{}) {
	c.mu.RLock()
	table, next := c.table, c.next
	c.mu.RUnlock()
	if table != nil {
		return table, next
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.table == nil {
		c.table, c.next = New(nil), make(chan struct{})
	}
	return c.table, c.next
}
