// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import "testing"

func TestMirrored(t *testing.T) {
	const digest = "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for _, tc := range []struct{ reason, registry, image, want string }{
		{"no mirror", "", "vllm/vllm-openai:v1", "vllm/vllm-openai:v1"},
		{"an image without a registry", "mirror.example", "vllm/vllm-openai:v1", "mirror.example/vllm/vllm-openai:v1"},
		{"an image of another registry", "mirror.example/a", "ghcr.io/ggml-org/llama.cpp:b1", "mirror.example/a/ggml-org/llama.cpp:b1"},
		{"a registry with a port", "mirror.example:5000", "localhost:5000/x:1", "mirror.example:5000/x:1"},
		{"the registry that goes without saying, said", "mirror.example", "docker.io/vllm/vllm-openai:v1", "mirror.example/vllm/vllm-openai:v1"},
		{"a digest", "mirror.example", "ghcr.io/a/b" + digest, "mirror.example/a/b" + digest},
		{"a slash too many", "mirror.example/", "a/b:1", "mirror.example/a/b:1"},
		{"no image that anybody could pull", "mirror.example", "A B", "A B"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			if got := mirrored(tc.registry, tc.image); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}
