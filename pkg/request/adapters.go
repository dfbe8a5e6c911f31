// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package request

import (
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// mostAdapters is the schema's limit on adapters.
const mostAdapters = 10

// isLive reports whether a Workspace requests adapters that change while the engine runs.
func isLive(in *v1beta1.InferenceSpec) bool { return in.AdapterUpdates == v1beta1.AdapterUpdatesLive }

// checkAdapters refuses adapters that admission also refuses, and volumes that admission cannot check.
func checkAdapters(adapters []v1beta1.AdapterSpec) error {
	if len(adapters) > mostAdapters {
		return invalid(fmt.Sprintf("inference.adapters has %d entries: at most %d are allowed", len(adapters), mostAdapters))
	}
	seen, secret := map[string]bool{}, ""
	for i, adapter := range adapters {
		at := fmt.Sprintf("inference.adapters[%d]", i)
		if problem := nameProblem(adapter.Source, seen); problem != "" {
			return invalid(at + ".source" + problem)
		}
		seen[adapter.Source.Name] = true
		if problem := sourceProblem(adapter.Source); problem != "" {
			return invalid(at + ".source" + problem)
		}
		for _, name := range adapter.Source.ImagePullSecrets {
			if secret != "" && name != secret {
				return invalid(fmt.Sprintf("%s.source.imagePullSecrets names Secret %q, but another "+
					"source names %q: put the credentials of all registries into one Secret", at, name, secret))
			}
			secret = name
		}
		if problem := pathProblem(adapter.Path); problem != "" {
			return invalid(at + ".path" + problem)
		}
		if problem := strengthProblem(adapter.Strength); problem != "" {
			return invalid(at + ".strength" + problem)
		}
	}
	return nil
}

// nameProblem returns the end of a sentence about a source's name; empty if the name is valid and unique.
func nameProblem(source *v1beta1.DataSource, seen map[string]bool) string {
	switch {
	case source == nil:
		return " must be set: a name, and an image, a volumeSource or a repository"
	case len(validation.IsDNS1123Subdomain(source.Name)) > 0:
		return fmt.Sprintf(".name is %q: it must be set to lower-case letters, digits, dashes and dots", shortened(source.Name))
	case seen[source.Name]:
		return fmt.Sprintf(".name %q is given twice: requests select an adapter by its name", source.Name)
	}
	return ""
}

// sourceProblem returns the end of a sentence about an adapter's source; empty if it is valid.
func sourceProblem(source *v1beta1.DataSource) string {
	given := 0
	for _, isGiven := range []bool{source.Image != "", source.Volume != nil || source.VolumeError != "", source.Repository != ""} {
		if isGiven {
			given++
		}
	}
	switch {
	case len(source.URLs) > 0:
		return ".urls is not supported: use image, volumeSource or repository"
	case given != 1:
		return " must have exactly one of image, volumeSource and repository"
	case source.VolumeError != "":
		return ".volumeSource cannot be read: " + source.VolumeError
	case source.Volume != nil && !isPodVolume(source.Volume):
		return ".volumeSource must be a persistentVolumeClaim, csi, ephemeral, configMap, secret, emptyDir or image: " +
			"other volumes give access to the node or contain tokens"
	case source.Repository != "" && !isRepository(source.Repository):
		return fmt.Sprintf(".repository is %q, which cannot be a repository of the hub: use ORG/NAME or ORG/NAME@REVISION, without a URL",
			shortened(source.Repository))
	}
	if _, err := name.ParseReference(source.Image); source.Image != "" && err != nil {
		return fmt.Sprintf(".image is %q, which is not a valid image reference: use lower case and no scheme, as in registry.example/adapter:v1", shortened(source.Image))
	}
	return ""
}

// isRepository reports whether the agent can query the hub for a repository. Otherwise the agent would fail on a
// machine that costs money.
func isRepository(text string) bool {
	return regexp.MustCompile(`^[A-Za-z0-9][\w.-]*(/[A-Za-z0-9_][\w.-]*)?(@[A-Za-z0-9_][\w./+-]*)?$`).MatchString(text) &&
		!strings.Contains(text, "..")
}

// pathProblem returns the end of a sentence about an adapter's path in its source; empty if engines accept the path.
// Engines use spaces, commas and colons to separate adapters.
func pathProblem(text string) string {
	isPlain := regexp.MustCompile(`^[\w.@+/-]+$`).MatchString(text) && path.Clean(text) == text && filepath.IsLocal(text)
	if text == "" || isPlain {
		return ""
	}
	return fmt.Sprintf(" is %q: it must be a path below the source, of letters, digits, dots, dashes and underscores, such as "+
		"checkpoint-300 or adapter.gguf", shortened(text))
}

// isPodVolume reports whether Pod Security's level restricted allows a volume, and the volume has no tokens.
func isPodVolume(volume *corev1.VolumeSource) bool {
	return volume.PersistentVolumeClaim != nil || volume.CSI != nil || volume.Ephemeral != nil || volume.ConfigMap != nil ||
		volume.Secret != nil || volume.EmptyDir != nil || volume.Image != nil
}

func strengthProblem(strength *string) string {
	if strength == nil {
		return ""
	}
	if value, err := strconv.ParseFloat(*strength, 64); err != nil || !(value >= 0 && value <= 1) {
		return fmt.Sprintf(" is %q: it must be a decimal number from 0 to 1, such as \"1.0\"", shortened(*strength))
	}
	return ""
}
