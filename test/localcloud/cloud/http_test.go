// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"context"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/modelberth/modelberth/test/script"
)

// newTestClient returns a client of a service on a socket.
func newTestClient(t *testing.T, handler http.Handler) *Client {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handler}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return NewClient(socket)
}

func TestClientAndServiceAgree(t *testing.T) {
	service, _, rules := newTestService(t)
	client := newTestClient(t, service.Handler())
	ctx := context.Background()

	skus, err := client.Catalogue(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(service.Catalogue(), skus); diff != "" {
		t.Errorf("catalogue (-sent +received):\n%s", diff)
	}
	created, err := client.Create(ctx, request("gpu"))
	if err != nil {
		t.Fatal(err)
	}
	changing := cmpopts.IgnoreFields(Machine{}, "State", "PID")
	got, err := client.Get(ctx, created.ID)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(created, got, changing); diff != "" {
		t.Errorf("machine by id (-created +got):\n%s", diff)
	}
	listed, err := client.List(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Machine{created}, listed, changing); diff != "" {
		t.Errorf("list (-created +listed):\n%s", diff)
	}
	if err := client.Delete(ctx, created.ID); err != nil {
		t.Fatal(err)
	}
	rules.Rules = []script.Rule{{Outcome: script.Quota, Message: "enough"}}
	_, err = client.Create(ctx, request("other"))
	var refused *Error
	if !errors.As(err, &refused) {
		t.Fatalf("a refusal arrives as %v", err)
	}
	want := Error{Code: CodeQuota, Message: "enough", Refusal: &script.Refusal{Ending: script.Keep, Reason: "SubscriptionQuotaReached", Message: "enough"}}
	if diff := cmp.Diff(want, *refused); diff != "" {
		t.Errorf("refusal (-want +got):\n%s", diff)
	}
	state, err := client.Script(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(ScriptState{Script: *rules, Counts: []script.Count{{Attempts: 1, Met: 1}}}, state); diff != "" {
		t.Errorf("script (-want +got):\n%s", diff)
	}
}

func TestClientErrors(t *testing.T) {
	service, _, _ := newTestService(t)
	broken := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "oops", http.StatusTeapot) })
	for _, test := range []struct {
		reason  string
		handler http.Handler
		call    func(context.Context, *Client) error
		want    Code
	}{
		{"an unknown machine", service.Handler(), func(ctx context.Context, c *Client) error { return c.Delete(ctx, "m-9") }, CodeNotFound},
		{"a request that is none", service.Handler(), func(ctx context.Context, c *Client) error {
			return c.Do(ctx, http.MethodPost, "/machines", "text", nil)
		}, CodeInvalid},
		{"an answer that is none of the cloud's", broken, func(ctx context.Context, c *Client) error {
			_, err := c.List(ctx)
			return err
		}, CodeInternal},
	} {
		t.Run(test.reason, func(t *testing.T) {
			var refused *Error
			err := test.call(context.Background(), newTestClient(t, test.handler))
			if !errors.As(err, &refused) || refused.Code != test.want {
				t.Errorf("got %v, want code %s", err, test.want)
			}
		})
	}
	if err := NewClient(filepath.Join(t.TempDir(), "none")).Delete(context.Background(), "m-1"); err == nil {
		t.Error("without a cloud there is no error")
	}
}
