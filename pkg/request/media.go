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

// mostPixels of a side, far above every encoder's largest image.
const mostPixels = 1 << 16

// limits of one kind of media in a prompt. A count that is nil means any number.
type limits struct {
	Count     *int `json:"count"`
	Width     int  `json:"width"`
	Height    int  `json:"height"`
	NumFrames int  `json:"num_frames"`
	Length    int  `json:"length"`
}

// readMedia reads limits of images and videos in a prompt: {"image": 2, "video": {"count": 0}}. The engine ignores the
// names of other kinds, and so does the plan.
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

// readLimits reads a number or an object with options; absent means no limit.
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
