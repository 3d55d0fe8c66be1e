#!/bin/sh
# Pictures of the screens from the snapshots of tests/ui: docs/screens/*.png. Needs chromium, fonts-firacode and pngquant.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
shots=$here/../../tests/ui/__snapshots__
scratch=$(mktemp -d)
trap 'rm -rf -- "$scratch"' EXIT

picture() { # picture FOLDER/NAME TARGET
    svg=$scratch/in.svg
    cp -- "$shots/test_snapshots_$1.svg" "$svg"
    window=$(grep -o 'viewBox="0 0 [0-9.]* [0-9.]*"' "$svg" | head -n 1 | sed 's/[^0-9. ]//g' | awk '{printf "%d,%d", $3 + .999, $4 + .999}')
    chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size="$window" \
        --screenshot="$scratch/out.png" "file://$svg" >/dev/null 2>&1
    pngquant --force --quality 60-90 --output "$here/$2.png" "$scratch/out.png"
}

for size in 120x40 80x24; do
    picture "wizard/test_wizard[calm-$size]" "wizard-calm-$size"
    picture "wizard/test_wizard[working-$size]" "wizard-working-$size"
    picture "wizard/test_wizard[boot-$size]" "wizard-boot-$size"
    picture "wizard/test_wizard[failing-$size]" "wizard-failing-$size"
    picture "wizard/test_wizard_simulated[$size]" "wizard-simulated-$size"
    picture "wizard/test_wizard[question-$size]" "wizard-question-$size"
    picture "monitor/test_monitor[working-$size]" "monitor-working-$size"
    picture "monitor/test_monitor[failing-$size]" "monitor-failing-$size"
    picture "links/test_links_of_four[ring-$size]" "links-ring-$size"
    picture "links/test_links_of_four[switch-$size]" "links-switch-$size"
    picture "first_start/test_first_start[profile-$size]" "first-start-profile-$size"
    picture "first_start/test_first_start[trying-$size]" "first-start-ssh-$size"
    picture "first_start/test_first_start[sparks-$size]" "first-start-sparks-$size"
    picture "first_start/test_first_start[keys-$size]" "first-start-keys-$size"
    picture "first_start/test_first_start[save-$size]" "first-start-save-$size"
    picture "settings/test_settings[calm-$size]" "settings-list-$size"
    picture "settings/test_settings[typing-$size]" "settings-$size"
    picture "settings/test_settings[diff-$size]" "settings-diff-$size"
    picture "logs/test_logs[failing-$size]" "logs-failing-$size"
    picture "cards/test_card[smoke-asking-$size]" "smoke-$size"
    picture "cards/test_card[talk-$size]" "talk-$size"
    picture "cards/test_card[help-$size]" "help-$size"
done
picture "monitor/test_monitor_pages[2]" monitor-links-80x24
