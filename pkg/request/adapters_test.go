// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package request_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/request"
)

// adapter returns an adapter from an image.
func adapter(name string, change ...func(*v1beta1.AdapterSpec)) v1beta1.AdapterSpec {
	out := v1beta1.AdapterSpec{Source: &v1beta1.DataSource{Name: name, Image: "registry.example/adapter:1"}}
	for _, c := range change {
		c(&out)
	}
	return out
}

func TestCheckAdapters(t *testing.T) {
	from := func(source v1beta1.DataSource) []v1beta1.AdapterSpec {
		source.Name = "a"
		return []v1beta1.AdapterSpec{{Source: &source}}
	}
	volume := func(source corev1.VolumeSource) []v1beta1.AdapterSpec {
		return from(v1beta1.DataSource{Volume: &source})
	}
	strength := func(text string) []v1beta1.AdapterSpec {
		return []v1beta1.AdapterSpec{adapter("a", func(a *v1beta1.AdapterSpec) { a.Strength = &text })}
	}
	at := func(path string) []v1beta1.AdapterSpec {
		return []v1beta1.AdapterSpec{adapter("a", func(a *v1beta1.AdapterSpec) { a.Path = path })}
	}
	badPath := func(path string) string {
		return fmt.Sprintf("SpecInvalid: inference.adapters[0].path is %q: it must be a path below the source, of letters, digits, "+
			"dots, dashes and underscores, such as checkpoint-300 or adapter.gguf", path)
	}
	var many []v1beta1.AdapterSpec
	for i := range 11 {
		many = append(many, adapter(fmt.Sprintf("a-%d", i)))
	}
	const one = "SpecInvalid: inference.adapters[0].source must have exactly one of image, volumeSource and repository"
	const kinds = "SpecInvalid: inference.adapters[0].source.volumeSource must be a persistentVolumeClaim, csi, ephemeral, configMap, " +
		"secret, emptyDir or image: other volumes give access to the node or contain tokens"
	for _, tc := range []struct {
		reason   string
		adapters []v1beta1.AdapterSpec
		want     string
	}{
		{"ten are possible", many[:10], ""},
		{"eleven are not", many, "SpecInvalid: inference.adapters has 11 entries: at most 10 are allowed"},
		{"an image", []v1beta1.AdapterSpec{adapter("team.a-1")}, ""},
		{"a repository", from(v1beta1.DataSource{Repository: "org/adapter"}), ""},
		{"an image by its digest", from(v1beta1.DataSource{Image: "registry.example:5000/a/b@sha256:" + strings.Repeat("0", 64)}), ""},
		{
			"no image",
			from(v1beta1.DataSource{Image: "oci://registry.example/Adapter"}),
			`SpecInvalid: inference.adapters[0].source.image is "oci://registry.example/Adapter", ` +
				"which is not a valid image reference: use lower case and no scheme, as in registry.example/adapter:v1",
		},
		{"a revision of a repository", from(v1beta1.DataSource{Repository: "org/adapter.v2@refs/pr/3"}), ""},
		{
			"the page of a repository",
			from(v1beta1.DataSource{Repository: "https://huggingface.co/org/adapter"}),
			`SpecInvalid: inference.adapters[0].source.repository is "https://huggingface.co/org/adapter", ` +
				"which cannot be a repository of the hub: use ORG/NAME or ORG/NAME@REVISION, without a URL",
		},
		{"a file", at("dir/adapter-q8_0.gguf"), ""},
		{"a path that climbs", at("../other"), badPath("../other")},
		{"a path that climbs half way", at("a/../../b"), badPath("a/../../b")},
		{"a path from the root", at("/models"), badPath("/models")},
		{"a path that is two to an engine", at("my adapter"), badPath("my adapter")},
		{"a path that is two to another engine", at("a.gguf,b.gguf"), badPath("a.gguf,b.gguf")},
		{"a pattern", at("check*"), badPath("check*")},
		{"a text that is cut between letters", at(strings.Repeat("ä", 40)), badPath(strings.Repeat("ä", 30) + "…")},
		{"a claim", volume(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}), ""},
		{
			"no source",
			[]v1beta1.AdapterSpec{{}},
			"SpecInvalid: inference.adapters[0].source must be set: a name, and an image, a volumeSource or a repository",
		},
		{
			"a name that climbs",
			[]v1beta1.AdapterSpec{adapter("../a")},
			`SpecInvalid: inference.adapters[0].source.name is "../a": it must be set to lower-case letters, digits, dashes and dots`,
		},
		{
			"two of one name",
			[]v1beta1.AdapterSpec{adapter("a"), adapter("b"), adapter("a")},
			`SpecInvalid: inference.adapters[2].source.name "a" is given twice: requests select an adapter by its name`,
		},
		{"nothing", from(v1beta1.DataSource{}), one},
		{"two sources", from(v1beta1.DataSource{Image: "i", Repository: "org/a"}), one},
		{
			"URLs", from(v1beta1.DataSource{URLs: []string{"https://host.example/a"}}),
			"SpecInvalid: inference.adapters[0].source.urls is not supported: use image, volumeSource or repository",
		},
		{
			"a volume that cannot be read", from(v1beta1.DataSource{VolumeError: "json: no"}),
			"SpecInvalid: inference.adapters[0].source.volumeSource cannot be read: json: no",
		},
		{"the node's disk", volume(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}), kinds},
		{"the service account's token", volume(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}), kinds},
		{"a volume of no kind", volume(corev1.VolumeSource{}), kinds},
		{
			"two Secrets", append(from(v1beta1.DataSource{Image: "i", ImagePullSecrets: []string{"one"}}), adapter("b", func(a *v1beta1.AdapterSpec) {
				a.Source.ImagePullSecrets = []string{"one", "two"}
			})),
			`SpecInvalid: inference.adapters[1].source.imagePullSecrets names Secret "two", but another source names "one": put the credentials of all registries into one Secret`,
		},
		{"no strength at all", strength("0"), ""},
		{"full strength", strength("1.0"), ""},
		{"more than trained", strength("1.01"), `SpecInvalid: inference.adapters[0].strength is "1.01": it must be a decimal number from 0 to 1, such as "1.0"`},
		{"against the training", strength("-1"), `SpecInvalid: inference.adapters[0].strength is "-1": it must be a decimal number from 0 to 1, such as "1.0"`},
		{"no number", strength("NaN"), `SpecInvalid: inference.adapters[0].strength is "NaN": it must be a decimal number from 0 to 1, such as "1.0"`},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			got := ""
			if err := request.Check(preset("some-model", func(ws *v1beta1.Workspace) { ws.Inference.Adapters = tc.adapters })); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
