// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"net/http"
	"strings"
	"testing"

	"github.com/modelberth/modelberth/pkg/router/hold"
	"github.com/modelberth/modelberth/pkg/router/limit"
	"github.com/modelberth/modelberth/pkg/router/models"
)

// broken is a directory that panics.
type broken struct{ Directory }

func (broken) Models() *models.Table { panic("no table") }

// TestPickLoading: through a gateway, too, an adapter that a replica loads exists, but another set's does not.
func TestPickLoading(t *testing.T) {
	h := newHolding(t, hold.Limits{}, func(*holding, *models.Owner) {}, nil)
	mine, other := set("m", 1), set("other", 1)
	mine.Loading, other.Loading = []string{"lora"}, []string{"foreign"}
	h.is(mine, other)
	for name, want := range map[string]int{"lora": http.StatusServiceUnavailable, "foreign": http.StatusNotFound} {
		picked := h.Pick(requestOf(t.Context(), `{"model":"`+name+`"}`), &Pool{Namespace: "a", Name: "m"})
		if got := picked.Answer(); got == nil || got.Status != want {
			t.Errorf("%s: the answer is %+v, want %d", name, got, want)
		}
		picked.End()
	}
}

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
