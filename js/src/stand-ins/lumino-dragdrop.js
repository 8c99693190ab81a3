// Stands in for @lumino/dragdrop (10 KB minified). Only the tab bar names it, for
// dragging tabs about, and the official Tab view switches that off
// (`tabBar.tabsMovable = false`), so no drag ever starts.
export class Drag {
  static overrideCursor() {
    return { dispose() {} };
  }
}
