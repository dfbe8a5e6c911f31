// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cosign

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
)

// Credentials come from a Secret of type kubernetes.io/dockerconfigjson. Its credential helpers never run: the Secret
// is a user's, and a helper would run as a program of the controller.
type Credentials struct{ auths map[string]authn.AuthConfig }

// ParseCredentials reads the content of such a Secret. Empty content gives anonymous access.
func ParseCredentials(config []byte) (Credentials, error) {
	var read struct {
		Auths map[string]authn.AuthConfig `json:"auths"`
	}
	if len(config) == 0 {
		return Credentials{}, nil
	}
	if err := json.Unmarshal(config, &read); err != nil {
		return Credentials{}, errors.New("it is not a Docker configuration: create one with kubectl create secret docker-registry")
	}
	return Credentials{read.Auths}, nil
}

// Resolve returns the credentials of the longest entry that contains a repository, or anonymous access if there is
// none.
func (c Credentials) Resolve(target authn.Resource) (authn.Authenticator, error) {
	longest, found := "", authn.AuthConfig{}
	for _, entry := range slices.Sorted(maps.Keys(c.auths)) {
		if place := normalized(entry); isBelow(target.String(), place) && len(place) > len(longest) {
			longest, found = place, c.auths[entry]
		}
	}
	return authn.FromConfig(found), nil
}

// IsBelow reports whether an artifact is in one of the given registries, or in one of the given paths of registries.
func IsBelow(reference string, places []string) bool {
	ref, err := name.ParseReference(reference)
	return err == nil && slices.ContainsFunc(places, func(place string) bool { return isBelow(ref.Context().Name(), place) })
}

func isBelow(repository, place string) bool {
	return strings.HasPrefix(normalized(repository)+"/", normalized(place)+"/")
}

// normalized returns one name for the several names of Docker Hub, and removes the scheme and the API version of old
// entries.
func normalized(place string) string {
	_, after, hasScheme := strings.Cut(place, "://")
	if hasScheme {
		place = after
	}
	place = strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(place, "/"), "/v1"), "/v2")
	host, path, _ := strings.Cut(place, "/")
	if host == "docker.io" || host == "registry-1.docker.io" {
		host = "index.docker.io"
	}
	return strings.TrimSuffix(host+"/"+path, "/")
}
