// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"encoding/json"
	"fmt"
)

// refuseEmpty refuses a key without a value. The decoder would read it as absent or 0, and a forgotten price must not
// make a machine free.
func refuseEmpty(entry json.RawMessage) error {
	var value any
	if err := json.Unmarshal(entry, &value); err != nil {
		return decodeError(err)
	}
	if path, found := emptyPath(value, ""); found {
		return decodeError(fmt.Errorf("%.200s is empty: give a value or leave it out", orWhole(path)))
	}
	return nil
}

// emptyPath returns the path of the first null, in the order of the keys.
func emptyPath(value any, path string) (string, bool) {
	switch v := value.(type) {
	case nil:
		return path, true
	case map[string]any:
		for _, key := range sortedKeys(v) {
			inner := key
			if path != "" {
				inner = path + "." + key
			}
			if found, ok := emptyPath(v[key], inner); ok {
				return found, true
			}
		}
	case []any:
		for i, item := range v {
			if found, ok := emptyPath(item, fmt.Sprintf("%s[%d]", path, i)); ok {
				return found, true
			}
		}
	}
	return "", false
}
