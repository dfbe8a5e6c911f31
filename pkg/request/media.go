// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package request

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/modelberth/modelberth/pkg/physics"
)

// mostPixels bounds the side of an image, far above every encoder's largest image.
const mostPixels = 1 << 16

// limits are the limits of one kind of media in a prompt. A nil Count means any number.
type limits struct {
	Count     *int `json:"count"`
	Width     int  `json:"width"`
	Height    int  `json:"height"`
	NumFrames int  `json:"num_frames"`
	Length    int  `json:"length"`
}

// readMedia parses the limits of images and videos in a prompt, such as {"image": 2, "video": {"count": 0}}. Like the
// engine, it ignores other kinds.
func readMedia(text string, into *physics.Media) error {
	var kinds map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &kinds); err != nil {
		return errors.New(`needs an object with a limit for each kind, such as {"image": 2, "video": 0}`)
	}
	image, err := readLimits("image", kinds["image"])
	if err != nil {
		return err
	}
	video, err := readLimits("video", kinds["video"])
	if err != nil {
		return err
	}
	if image.Count != nil {
		into.NoImages, into.Images = *image.Count == 0, *image.Count
	}
	into.NoVideos = video.Count != nil && *video.Count == 0
	if min(image.Width, image.Height) > 0 {
		into.Width, into.Height = min(image.Width, mostPixels), min(image.Height, mostPixels)
	}
	return nil
}

// readLimits parses a number or an object with options. Absent means no limit.
func readLimits(kind string, text json.RawMessage) (limits, error) {
	var out limits
	if len(text) == 0 {
		return out, nil
	}
	if json.Unmarshal(text, &out.Count) != nil {
		strict := json.NewDecoder(bytes.NewReader(text))
		strict.DisallowUnknownFields()
		if err := strict.Decode(&out); err != nil {
			return limits{}, fmt.Errorf("%s: needs a whole number or an object with count, width and height", kind)
		}
	}
	if out.Count != nil && *out.Count < 0 || out.Width < 0 || out.Height < 0 {
		return limits{}, fmt.Errorf("%s: a limit must not be negative", kind)
	}
	return out, nil
}
