// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package describe

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAdapterRank(t *testing.T) {
	for _, tc := range []struct {
		reason, repo, revision, config string
		want                           int
		err                            string
	}{
		{reason: "as PEFT writes it", repo: testRepo, config: `{"peft_type": "LORA", "r": 16, "lora_alpha": 32}`, want: 16},
		{reason: "at a commit", repo: testRepo, revision: testCommit, config: `{"r": 8}`, want: 8},
		{reason: "another kind of adapter", repo: testRepo, config: `{"peft_type": "PREFIX_TUNING"}`, err: `adapter_config.json has peft_type "PREFIX_TUNING": only LORA can be served with a model`},
		{reason: "no rank", repo: testRepo, config: `{"peft_type": "LORA"}`, err: "adapter_config.json has no rank (r): it is not a low-rank adapter"},
		{reason: "another type", repo: testRepo, config: `{"r": "eight"}`, err: "reading adapter_config.json: json: cannot unmarshal string"},
		{reason: "no adapter", repo: testRepo, err: "adapter_config.json"},
		{reason: "no id", repo: "adapter", config: `{"r": 8}`, err: "not a model id: give ORG/NAME"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			files := repository{}
			if tc.config != "" {
				files["adapter_config.json"] = tc.config
			}
			server := serve(t, files.ServeHTTP)
			got, err := AdapterRank(t.Context(), newTestClient(t, server.URL), tc.repo, tc.revision)
			switch {
			case tc.err == "" && err != nil, got != tc.want:
				t.Errorf("rank %d, %v, want %d", got, err, tc.want)
			case tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err) || !strings.Contains(err.Error(), `adapter "`+tc.repo+`"`)):
				t.Errorf("error %v, want %s", err, tc.err)
			}
		})
	}
}

// The rank in a private repository stays unknown. A missing file is an error.
func TestAdapterRanks(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/org/gated/"):
			w.Header().Set("X-Error-Code", "GatedRepo")
			w.WriteHeader(http.StatusForbidden)
		case strings.HasPrefix(r.URL.Path, "/org/away/"):
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			repository{"adapter_config.json": `{"r": 32}`}.ServeHTTP(w, r)
		}
	})
	client := newTestClient(t, server.URL)
	got, err := AdapterRanks(t.Context(), client, []string{testRepo + "@" + testCommit, "org/gated", "org/away", testRepo})
	if diff := cmp.Diff([]int{32, 32}, got); diff != "" || err != nil {
		t.Errorf("%v, -want +got:\n%s", err, diff)
	}
	if got, err := AdapterRanks(t.Context(), client, []string{testRepo, "org/misspelt"}); err == nil {
		t.Errorf("ranks %v of a repository that is not there", got)
	}
}
