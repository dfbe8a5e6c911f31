// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"encoding/json"
	"net/http"
	"sync"

	"github.com/modelberth/modelberth/pkg/router/models"
	"github.com/modelberth/modelberth/pkg/router/openai"
)

// listed is a model in OpenAI's list.
type listed struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
	Ready   bool   `json:"ready"`
}

func listedOf(name string, owner *models.Owner) listed {
	return listed{ID: name, Object: "model", Created: owner.Created.Unix(), OwnedBy: owner.ID(), Ready: len(owner.ReplicasOf(name)) > 0}
}

// list answers with all models that the client may use, or with the model in the path.
func (x *exchange) list(w http.ResponseWriter, req *http.Request) *openai.Error {
	table, name := x.router.directory.Models(), ""
	if isModelPath(req.URL.Path) {
		name = req.URL.Path[len(pathModels)+1:]
	}
	if err := x.see(req, x.pool.namespaces(table, name)); err != nil {
		return err
	}
	client := x.client
	var out any
	if name != "" {
		owner := x.lookUp(table, name)
		if owner == nil || !client.Allows(owner.Served(name), owner.ID()) {
			return openai.Errorf(http.StatusNotFound, openai.CodeModelNotFound, "there is no model %.256q: GET /v1/models lists the available models", name)
		}
		out = listedOf(name, owner)
	} else {
		data := []listed{}
		for _, m := range x.visible(table) {
			if client.Allows(m.Owner.Served(m.Name), m.Owner.ID()) {
				data = append(data, listedOf(m.Name, m.Owner))
			}
		}
		out = map[string]any{"object": "list", "data": data}
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	// Ignore the error: the client may have gone.
	_ = json.NewEncoder(w).Encode(out)
	return nil
}

// pool reuses the buffers for answers. They are small, as the pieces of a stream are.
type pool struct{ sync.Pool }

const bufferSize = 8 << 10

var buffers = &pool{sync.Pool{New: func() any { return new([bufferSize]byte) }}} //nolint:gochecknoglobals // memory without state

// Get returns a buffer.
func (p *pool) Get() []byte {
	buffer, ok := p.Pool.Get().(*[bufferSize]byte)
	if !ok {
		buffer = new([bufferSize]byte)
	}
	return buffer[:]
}

// Put returns a buffer to the pool.
func (p *pool) Put(buffer []byte) {
	if len(buffer) == bufferSize {
		p.Pool.Put((*[bufferSize]byte)(buffer))
	}
}
