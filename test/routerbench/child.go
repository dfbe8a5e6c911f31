// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/modelberth/modelberth/pkg/router"
	"github.com/modelberth/modelberth/pkg/router/limit"
	"github.com/modelberth/modelberth/pkg/router/models"
	"github.com/modelberth/modelberth/pkg/router/run"
)

// Roles of this program in processes of their own.
const (
	roleEngine = "engine"
	roleRouter = "router"
)

const clientKey = "sk-bench-0123456789abcdef"

// child runs a role until an interrupt.
func child(role string, args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	switch {
	case role == roleEngine && len(args) == 1:
		return serveEngine(ctx, args[0])
	case role == roleRouter && len(args) == 2:
		return serveRouter(ctx, args[0], args[1])
	}
	return fmt.Errorf("wrong arguments for %s: %q", role, args)
}

// fixed has one model, and no cluster to watch.
type fixed struct{ table *models.Table }

func (f fixed) Models() *models.Table { return f.table }

func (f fixed) Next() (*models.Table, <-chan struct{}) { return f.table, nil }

func (f fixed) Run(ctx context.Context, ready func()) error {
	ready()
	<-ctx.Done()
	return nil
}

// serveRouter runs the router as its command does: with keys, an access log and metrics, but without a cluster.
func serveRouter(ctx context.Context, address, engine string) error {
	var o run.Options
	o.Bind(flag.NewFlagSet(roleRouter, flag.ContinueOnError))
	o.Address, o.MetricsAddress, o.ProbeAddress, o.DrainDelay = address, "127.0.0.1:0", "127.0.0.1:0", 0
	o.MetricsInsecure = true // there is no API server to ask
	key, err := limit.Parse("bench", map[string][]byte{
		limit.FieldKey: []byte(clientKey), limit.FieldNamespaces: []byte("bench"), limit.FieldTokensPerMinute: []byte("2000000000"),
	})
	if err != nil {
		return err
	}
	keys := limit.NewKeys(1)
	keys.Set([]limit.Key{key})
	table := models.New([]models.Owner{{
		Namespace: "bench", Name: "model", Kind: "Workspace", Names: []string{"model"}, Replicas: []string{engine},
	}})
	return run.ServeWith(ctx, o, run.Cluster{Directory: fixed{table}, Keys: keys}, slog.New(slog.NewJSONHandler(os.Stderr, nil)))
}

// serveEngine answers at once, or with an event a second if a stream is asked for.
func serveEngine(ctx context.Context, address string) error {
	server := router.Server(http.HandlerFunc(answer))
	server.Addr = address
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// wholeAnswer is about as long as one of 16 tokens.
var wholeAnswer = `{"id":"chatcmpl-0","object":"chat.completion","created":1,"model":"model","choices":[{"index":0,"message":` +
	`{"role":"assistant","content":"` + strings.Repeat("word ", 16) + `"},"finish_reason":"stop"}],` +
	`"usage":{"prompt_tokens":16,"completion_tokens":16,"total_tokens":32}}`

const event = `data: {"id":"chatcmpl-0","object":"chat.completion.chunk","created":1,"model":"model","choices":[{"index":0,"delta":{"content":"word "},"finish_reason":null}]}` + "\n\n"

// streamLength is the length of a stream in bytes.
func streamLength(events int) int64 { return int64(events * len(event)) }

func answer(w http.ResponseWriter, req *http.Request) {
	var asked struct {
		Stream    bool `json:"stream"`
		MaxTokens int  `json:"max_tokens"`
	}
	text, err := io.ReadAll(req.Body)
	if err == nil {
		err = json.Unmarshal(text, &asked)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if !asked.Stream {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, wholeAnswer)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for range asked.MaxTokens {
		_, _ = io.WriteString(w, event)
		_ = http.NewResponseController(w).Flush()
		select {
		case <-ticker.C:
		case <-req.Context().Done():
			return
		}
	}
}
