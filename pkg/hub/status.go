// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/modelberth/modelberth/pkg/redact"
	"github.com/modelberth/modelberth/pkg/wording"
)

const maxMessage = 300

// missingByCode maps the hub's X-Error-Code to the absent part.
func missingByCode(code string) (string, bool) {
	switch code {
	case "RepoNotFound":
		return "repository", true
	case "RevisionNotFound":
		return "revision", true
	case "EntryNotFound":
		return "file", true
	}
	return "", false
}

// classify turns an unsuccessful answer into an error. It does not read the body.
func (c *Client) classify(f File, resp *http.Response) error {
	message := clean(resp.Header.Get("X-Error-Message"))
	code := resp.Header.Get("X-Error-Code")
	unreachable := &UnreachableError{
		Endpoint: origin(resp.Request.URL), File: f, Status: resp.StatusCode, RetryAfter: c.retryAfter(resp.Header),
	}
	// A CDN's refusal is about its signed link. The hub signs a new link for the next request.
	if !c.isHome(resp.Request.URL) {
		return unreachable
	}
	switch resp.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		return &UnauthorizedError{
			File: f, Status: resp.StatusCode, Gated: code == "GatedRepo",
			TokenSent: c.token != "", Message: message,
		}
	case http.StatusNotFound, http.StatusGone, http.StatusBadRequest, http.StatusUnavailableForLegalReasons:
		missing, ok := missingByCode(code)
		if !ok {
			missing = "resource"
		}
		return &NotFoundError{File: f, Missing: missing, Message: message}
	}
	return unreachable
}

// retryAfter reads Retry-After (seconds or a date), or else t= in the RateLimit header: the seconds until the end of
// the Hub's present window.
func (c *Client) retryAfter(h http.Header) time.Duration {
	value := h.Get("Retry-After")
	if value == "" {
		if m := rateLimitReset().FindStringSubmatch(h.Get("RateLimit")); m != nil {
			value = m[1]
		}
	}
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(0, at.Sub(c.clock.Now()))
	}
	return 0
}

func rateLimitReset() *regexp.Regexp { return regexp.MustCompile(`(?:^|;)\s*t=(\d+)`) }

// clean redacts and shortens a foreign text to one line.
func clean(s string) string {
	return wording.Clip(wording.OneLine(redact.Text(s)), maxMessage)
}
