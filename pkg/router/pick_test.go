// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"strings"
	"testing"

	"github.com/modelberth/modelberth/pkg/router/hold"
	"github.com/modelberth/modelberth/pkg/router/limit"
	"github.com/modelberth/modelberth/pkg/router/models"
)

// broken is a directory that panics.
type broken struct{ Directory }

func (broken) Models() *models.Table { panic("no table") }

// TestPickPanics: a request that panics gives the memory for its body back.
func TestPickPanics(t *testing.T) {
	h := newHolding(t, hold.Limits{}, func(*holding, *models.Owner) {}, nil)
	h.settings.IsOpen = false
	h.keys.Set([]limit.Key{key(t, map[string]string{"key": secretA, "namespaces": "a"})})
	h.Router.directory = broken{}
	request := requestOf(t.Context(), `{"model":"m","prompt":"`+strings.Repeat("a", 9000)+`"}`)
	request.Header.Set("Authorization", "Bearer "+secretA)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic is lost")
			}
		}()
		h.Pick(request, &Pool{Namespace: "a", Name: "m"})
	}()
	client := h.keys.Find(secretA)
	if all, own := h.buffered.Load(), client.Hold(0); all != 0 || own != 0 {
		t.Errorf("%d bytes stay reserved, and %d of the key", all, own)
	}
}
