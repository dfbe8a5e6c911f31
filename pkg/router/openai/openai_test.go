// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package openai

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestWrite(t *testing.T) {
	cases := []struct {
		reason string
		err    *Error
		status int
		body   string
		header map[string]string
	}{
		{
			"an error of the client has no advice about time",
			&Error{Status: http.StatusBadRequest, Code: CodeMissingModel, Param: "model", Message: "no model"}, 400,
			`{"error":{"message":"no model","type":"invalid_request_error","param":"model","code":"missing_model"}}` + "\n",
			map[string]string{"Retry-After": "", "Cache-Control": "no-store"},
		},
		{
			"seconds are rounded up, because 0 would mean at once",
			Errorf(http.StatusServiceUnavailable, CodeModelUnavailable, "model %q starts", "m").After(1200 * time.Millisecond), 503,
			`{"error":{"message":"model \"m\" starts","type":"server_error","param":null,"code":"model_unavailable"}}` + "\n",
			map[string]string{"Retry-After": "2"},
		},
		{
			"a missing key asks for one",
			Errorf(http.StatusUnauthorized, CodeInvalidKey, "send a key"), 401,
			`{"error":{"message":"send a key","type":"authentication_error","param":null,"code":"invalid_api_key"}}` + "\n",
			map[string]string{"WWW-Authenticate": `Bearer realm="modelberth"`},
		},
		{
			"a name with markup stays text",
			Errorf(http.StatusTooManyRequests, CodeRateLimit, "<b>"), 429,
			"{\"error\":{\"message\":\"\\u003cb\\u003e\",\"type\":\"rate_limit_error\",\"param\":null,\"code\":\"rate_limit_exceeded\"}}\n",
			map[string]string{"Content-Type": "application/json", "X-Content-Type-Options": "nosniff"},
		},
		{
			"a key without the right", Errorf(http.StatusForbidden, CodeModelNotAllowed, "no"), 403,
			`{"error":{"message":"no","type":"permission_error","param":null,"code":"model_not_allowed"}}` + "\n", nil,
		},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			w := httptest.NewRecorder()
			Write(w, c.err)
			if w.Code != c.status {
				t.Errorf("the status is %d, want %d", w.Code, c.status)
			}
			if diff := cmp.Diff(c.body, w.Body.String()); diff != "" {
				t.Errorf("body (-want +got):\n%s", diff)
			}
			for name, want := range c.header {
				if got := w.Header().Get(name); got != want {
					t.Errorf("%s is %q, want %q", name, got, want)
				}
			}
		})
	}
}
